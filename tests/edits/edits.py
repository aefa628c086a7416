"""Edits of a program, as people make them: each gives another program, or None where it has no place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from tests.edits.editor import (
    EDITS,
    Editor,
    edit,
    harmless,
    next_site,
    pick_node,
    swap,
    used_steps,
)
from tests.edits.programs import (
    HOWS,
    PEOPLE,
    TIMES,
    Block,
    Branch,
    Call,
    Choice,
    Decl,
    Fan,
    Help,
    Loop,
    Mapped,
    Node,
    Patched,
    Program,
    Receive,
    Sleep,
    Spawn,
    StepKind,
    Task,
    Try,
    Turn,
    at,
    nodes,
    parts_of,
)
from tests.edits.turns import OVER_TURNS, has_inner_turn, joined

# Names ------------------------------------------------------------------------------------------


def _renamed(program: Program, rng: Editor, *kinds: StepKind, with_alias: bool) -> Program | None:
    found = used_steps(program, *kinds)
    if not found:
        return None
    decl = rng.pick(found)
    aliases = (*decl.aliases, decl.name) if with_alias else ()
    name = f"{decl.name.partition('_')[0]}_{decl.lineage}_{program.made + 1}"
    changed = program.declared(decl.lineage, name=name, aliases=aliases)
    return replace(changed, made=program.made + 1)


@harmless
def rename_with_alias(program: Program, rng: Editor) -> Program | None:
    """A step is renamed, and says how it was called before."""
    return _renamed(program, rng, with_alias=True)


@edit
def rename_effect(program: Program, rng: Editor) -> Program | None:
    """An effect is renamed, and nothing is said."""
    return _renamed(program, rng, "action", "once", with_alias=False)


@harmless
def rename_read(program: Program, rng: Editor) -> Program | None:
    """A read or a decision is renamed, and nothing is said: it is asked again."""
    return _renamed(program, rng, "read", "decision", with_alias=False)


@harmless
def add_alias(program: Program, rng: Editor) -> Program | None:
    """A step says a name that it never had."""
    decl = rng.pick([*program.decls.values()])
    return program.declared(decl.lineage, aliases=(*decl.aliases, f"once_{decl.lineage}"))


@harmless
def rename_helper(program: Program, rng: Editor) -> Program | None:
    """A function around steps is renamed."""
    node, name = pick_node(program, rng, Help | Task | Fan), f"other_{next_site(program)}"
    match node:
        case Help():
            return swap(program, node, replace(node, name=name), made=1)
        case Task() | Fan():
            return swap(program, node, replace(node, stem=name), made=1)
    return None


@harmless
def rename_branch(program: Program, rng: Editor) -> Program | None:
    """A branch is renamed."""
    node = pick_node(program, rng, Branch)
    return swap(program, node, replace(node, name="middle")) if isinstance(node, Branch) else None


# Where calls stand --------------------------------------------------------------------------------


@harmless
def wrap(program: Program, rng: Editor) -> Program | None:
    """One more task, function, or branch around a part."""
    node, site = rng.pick([*nodes(program.block)]), next_site(program)
    around: Node = rng.choice(
        (
            Task(site, f"task_{site}", (node,)),
            Help(site, f"help_{site}", (node,)),
            Branch(site, f"branch_{site}", (node,)),
            Try(site, (node,)),
        )
    )
    return swap(program, node, around, made=1)


@harmless
def wrap_all(program: Program, rng: Editor) -> Program | None:
    """One more task or function around the whole agent, or all of a turn."""
    parts = parts_of(program.block)
    turn, block = rng.choice(parts)
    site = next_site(program)
    around: Node = rng.choice((Task(site, f"task_{site}", block), Help(site, f"help_{site}", block)))
    parts[parts.index((turn, block))] = (turn, (around,))
    return replace(program, block=joined(parts), made=program.made + 1)


@harmless
def unwrap(program: Program, rng: Editor) -> Program | None:
    """A task, function or branch around a part is taken away."""
    node = pick_node(program, rng, Task | Help | Branch | Try)
    return swap(program, node, *node.block) if isinstance(node, Task | Help | Branch | Try) else None


@harmless
def move_to_helper(program: Program, rng: Editor) -> Program | None:
    """The first half of a part becomes a function."""
    node, site = rng.pick([*nodes(program.block)]), next_site(program)

    def change(block: Block, index: int) -> Block:
        turns = [number for number in range(index) if isinstance(block[number], Turn)]
        begin = max(turns, default=-1) + 1
        moved = Help(site, f"help_{site}", block[begin : index + 1])
        return (*block[:begin], moved, *block[index + 1 :])

    return replace(program, block=at(program.block, node.site, change), made=program.made + 1)


@edit
def reorder(program: Program, rng: Editor) -> Program | None:
    """Two neighbours change places."""
    node = rng.pick([*nodes(program.block)])

    def change(block: Block, index: int) -> Block:
        if index + 1 == len(block):
            return block
        return (*block[:index], block[index + 1], block[index], *block[index + 2 :])

    changed = replace(program, block=at(program.block, node.site, change))
    return changed if changed != program else None


@edit
def refan(program: Program, rng: Editor) -> Program | None:
    """What was gathered comes one after the other, or the other way round."""
    node = pick_node(program, rng, Fan)
    if not isinstance(node, Fan):
        return None
    return swap(program, node, replace(node, how=rng.choice([one for one in HOWS if one != node.how])))


@harmless
def reorder_arms(program: Program, rng: Editor) -> Program | None:
    """What is gathered is gathered in another order."""
    node = pick_node(program, rng, Fan)
    if not isinstance(node, Fan) or node.how == "sequence":
        return None
    return swap(program, node, replace(node, arms=(*node.arms[1:], node.arms[0])))


@harmless
def unroll_inline(program: Program, rng: Editor) -> Program | None:
    """Calls that were gathered as they are get functions of their own, or lose them.

    Not of those that come one after the other: there it changes nothing.
    """
    node = pick_node(program, rng, Fan)
    if not isinstance(node, Fan) or node.how == "sequence":
        return None
    site = next_site(program)
    arms = tuple((Help(f"{site}x{i}", f"own_{site}_{i}", arm),) for i, arm in enumerate(node.arms))
    return swap(program, node, replace(node, arms=arms, inline=False), made=1)


@edit
def split(program: Program, rng: Editor) -> Program | None:
    """A gather of several becomes two, one after the other."""
    node, site = pick_node(program, rng, Fan), next_site(program)
    if not isinstance(node, Fan) or len(node.arms) < 2:
        return None
    cut = rng.randrange(1, len(node.arms))
    rest = Fan(site, node.how, node.arms[cut:], f"arm_{site}", node.inline)
    return swap(program, node, replace(node, arms=node.arms[:cut]), rest, made=1)


@harmless
def loop_to_calls(program: Program, rng: Editor) -> Program | None:
    """A loop of one kind of branch gets a function around its body."""
    node, site = pick_node(program, rng, Loop), next_site(program)
    if not isinstance(node, Loop):
        return None
    return swap(program, node, replace(node, block=(Help(site, f"help_{site}", node.block),)), made=1)


# What is asked for --------------------------------------------------------------------------------


def _inserted(program: Program, rng: Editor, node: Node) -> Program:
    """Put a node before or behind another."""
    beside = rng.pick([*nodes(program.block)])
    is_before = rng.random() < 0.5

    def change(block: Block, index: int) -> Block:
        index += not is_before
        return (*block[:index], node, *block[index:])

    return replace(program, block=at(program.block, beside.site, change), made=program.made + 1)


def _new_call(program: Program, rng: Editor, *kinds: StepKind) -> Call:
    decl = rng.pick([one for one in program.decls.values() if one.kind in kinds])
    number = (program.made + 1) * TIMES
    return Call(next_site(program), decl.lineage, rng.choice(PEOPLE), number, counts=True)


@harmless
def add_read(program: Program, rng: Editor) -> Program | None:
    """A read or a decision is added."""
    return _inserted(program, rng, _new_call(program, rng, "read", "decision"))


@edit
def add_effect(program: Program, rng: Editor) -> Program | None:
    """An effect is added, and nothing is said."""
    return _inserted(program, rng, _new_call(program, rng, "action", "once"))


@edit
def add_like(program: Program, rng: Editor) -> Program | None:
    """An effect is added that is what another is, too."""
    node = pick_node(program, rng, Call)
    if not isinstance(node, Call) or program.decls[node.step].id:
        return None
    return _inserted(program, rng, replace(node, site=next_site(program)))


@edit
def add_wait(program: Program, rng: Editor) -> Program | None:
    """A sleep or a wait for a signal is added."""
    site = next_site(program)
    return _inserted(program, rng, rng.choice((Sleep(site, 60), Receive(site))))


@harmless
def patch_effect(program: Program, rng: Editor) -> Program | None:
    """An effect is added for runs that have not come here yet, in the agent's own line."""
    call, site = _new_call(program, rng, "action", "once"), next_site(program)
    index = rng.randint(0, len(program.block))
    patched = Patched(f"{site}p", f"patch-{site}", (call,))
    return replace(
        program, block=(*program.block[:index], patched, *program.block[index:]), made=program.made + 1
    )


def _removed(program: Program, node: Call) -> Program | None:
    """Take a call away; a block that would be empty keeps it."""

    def change(block: Block, index: int) -> Block:
        return (*block[:index], *block[index + 1 :]) if len(block) > 1 else block

    changed = replace(program, block=at(program.block, node.site, change))
    return changed if changed != program else None


def _pick_call(program: Program, rng: Editor, *kinds: StepKind) -> Call | None:
    found = [
        node
        for node in nodes(program.block)
        if isinstance(node, Call) and program.decls[node.step].kind in kinds
    ]
    return rng.pick(found) if found else None


@harmless
def remove_read(program: Program, rng: Editor) -> Program | None:
    """A read or a decision is taken away."""
    node = _pick_call(program, rng, "read", "decision")
    return _removed(program, node) if node is not None else None


@edit
def remove_effect(program: Program, rng: Editor) -> Program | None:
    """An effect is taken away, and nothing is said."""
    node = _pick_call(program, rng, "action", "once")
    return _removed(program, node) if node is not None else None


@harmless
def forget_effect(program: Program, rng: Editor) -> Program | None:
    """An effect is taken away, and the agent says that it gives it up."""
    node = _pick_call(program, rng, "action", "once")
    changed = _removed(program, node) if node is not None else None
    if changed is None or node is None:
        return None
    decl = program.decls[node.step]
    return replace(changed, forgets=tuple(dict.fromkeys((*changed.forgets, decl.name, *decl.aliases))))


@edit
def change_effect(program: Program, rng: Editor) -> Program | None:
    """An effect gets other arguments."""
    node = _pick_call(program, rng, "action", "once")
    if node is None:
        return None
    return swap(program, node, replace(node, n=(program.made + 1) * TIMES), made=1)


@edit
def change_child(program: Program, rng: Editor) -> Program | None:
    """A child is started with other arguments."""
    node = pick_node(program, rng, Spawn)
    if not isinstance(node, Spawn):
        return None
    return swap(program, node, replace(node, n=(program.made + 1) * TIMES), made=1)


@edit
def change_decision(program: Program, rng: Editor) -> Program | None:
    """A decision or read gets other arguments; where it was a choice, that may go another way."""
    node = (
        pick_node(program, rng, Choice)
        if rng.random() < 0.6
        else _pick_call(program, rng, "read", "decision")
    )
    if not isinstance(node, Choice | Call):
        return None
    return swap(program, node, replace(node, n=(program.made + 1) * TIMES), made=1)


# How steps are declared ---------------------------------------------------------------------------


def _redeclared(
    program: Program, rng: Editor, choose: Callable[[Decl], bool], **changes: object
) -> Program | None:
    found = [one for one in used_steps(program, "action", "once") if choose(one)]
    return program.declared(rng.pick(found).lineage, **changes) if found else None


@harmless
def change_key(program: Program, rng: Editor) -> Program | None:
    """A step gets another key."""
    found = [one for one in used_steps(program) if one.key]
    if not found:
        return None
    decl = rng.pick(found)
    return program.declared(decl.lineage, key=f"{decl.lineage}-{program.made}:{{to}}:{{n}}")


@harmless
def add_key(program: Program, rng: Editor) -> Program | None:
    """A step without a key gets one."""
    found = [
        one for one in used_steps(program, "action", "once") if not one.key and not one.id and not one.fails
    ]
    decl = rng.pick(found) if found else None
    if decl is None or _is_repeated(program, decl.lineage):
        return None
    return program.declared(decl.lineage, key=f"{decl.lineage}:{{to}}:{{n}}")


@edit
def drop_key(program: Program, rng: Editor) -> Program | None:
    """A step loses its key."""
    found = [one for one in used_steps(program) if one.key and not _is_repeated(program, one.lineage)]
    return program.declared(rng.pick(found).lineage, key="") if found else None


@harmless
def add_id(program: Program, rng: Editor) -> Program | None:
    """A step gets an identity from outside."""
    found = [
        one
        for one in used_steps(program, "action", "once")
        if not one.key and not one.id and not _is_repeated(program, one.lineage)
    ]
    return program.declared(rng.pick(found).lineage, id="{to}-{n}") if found else None


@harmless
def drop_id(program: Program, rng: Editor) -> Program | None:
    """A step loses the identity that it had from outside."""
    return _redeclared(program, rng, lambda one: bool(one.id), id="")


@edit
def change_kind(program: Program, rng: Editor) -> Program | None:
    """A step that must not be repeated may be from now on, or the other way round."""
    found = [one for one in used_steps(program, "action", "once") if not one.fails]
    if not found:
        return None
    decl = rng.pick(found)
    kind: Literal["action", "once"] = "once" if decl.kind == "action" else "action"
    return program.declared(decl.lineage, kind=kind)


def _is_repeated(program: Program, lineage: str) -> bool:
    """Return whether a step is asked for with the same arguments more than once, as far as can be seen."""
    calls = [
        node for node in nodes(program.block) if isinstance(node, Call | Mapped) and node.step == lineage
    ]
    loops = [node.block for node in nodes(program.block) if isinstance(node, Loop)]
    rounds = [block for turn, block in parts_of(program.block) if turn.rounds > 1]
    in_loops, in_rounds = (
        {one.site for block in blocks for one in nodes(block)} for blocks in (loops, rounds)
    )
    for node in calls:
        counts = isinstance(node, Mapped) or node.counts
        if node.site in in_loops and (not counts or node.site in in_rounds):
            return True
        if node.site in in_rounds and not counts:
            return True
    return len({(node.to, node.n) for node in calls}) < len(calls)


def edited(program: Program, rng: Editor) -> tuple[Program, tuple[str, ...]]:
    """Apply one to three edits at random; returns the program and their names."""
    done: list[str] = []
    count = rng.choice((1, 1, 1, 2, 3))
    while len(done) < count:
        is_over_turns = len(parts_of(program.block)) > 1 and rng.random() < 0.25
        name = rng.choice(tuple(sorted(OVER_TURNS) if is_over_turns else EDITS))
        changed = EDITS[name](program, rng)
        if changed is not None and not has_inner_turn(changed.block):
            program = changed
            done.append(name)
    return program, tuple(done)
