"""Random agents as small trees, which `source` writes down as Python and `edits` changes.

A program is made from a random source alone. Every node has a site of its own, which stays with it through
all edits; every step has a lineage, which stays with it through all its names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

StepKind = Literal["decision", "read", "action", "once"]
How = Literal["sequence", "gather", "nl.gather", "group", "tasks", "as_completed"]
HOWS: tuple[How, ...] = ("sequence", "gather", "nl.gather", "group", "tasks", "as_completed")
EFFECTS = ("action", "once")
PEOPLE = ("ann", "bob", "cyd")
TIMES = 10
"""How far apart the arguments of two sites are, so that a loop's do not meet the next site's."""


class Decl(Struct, frozen=True):
    """A step as it is declared."""

    lineage: str
    name: str
    kind: StepKind
    key: str = ""
    id: str = ""
    aliases: tuple[str, ...] = ()
    has_verify: bool = True
    fails: bool = False

    @property
    def is_effect(self) -> bool:
        """Return whether it touches the world."""
        return self.kind in EFFECTS


class Call(Struct, frozen=True, tag=True):
    """A call of a step; in a loop its number grows, if it `counts`."""

    site: str
    step: str
    to: str
    n: int
    counts: bool = True


class Fan(Struct, frozen=True, tag=True):
    """Several blocks beside each other, or one after the other; `inline`: calls are given as they are."""

    site: str
    how: How
    arms: tuple[Block, ...]
    stem: str
    inline: bool = False


class Mapped(Struct, frozen=True, tag=True):
    """One step for several numbers, by `nl.map`."""

    site: str
    step: str
    to: str
    n: int
    times: int


class Task(Struct, frozen=True, tag=True):
    """A block in a task of its own."""

    site: str
    stem: str
    block: Block


class Help(Struct, frozen=True, tag=True):
    """A block in a helper function."""

    site: str
    name: str
    block: Block


class Branch(Struct, frozen=True, tag=True):
    """A block under the name of a branch."""

    site: str
    name: str
    block: Block


class Loop(Struct, frozen=True, tag=True):
    """A block several times."""

    site: str
    times: int
    block: Block


class Try(Struct, frozen=True, tag=True):
    """A block whose failure is caught."""

    site: str
    block: Block


class Choice(Struct, frozen=True, tag=True):
    """What a decision says is done."""

    site: str
    step: str
    to: str
    n: int
    yes: Block
    no: Block


class Sleep(Struct, frozen=True, tag=True):
    """A durable sleep."""

    site: str
    seconds: int


class Receive(Struct, frozen=True, tag=True):
    """A wait for a signal."""

    site: str


class Spawn(Struct, frozen=True, tag=True):
    """A child run, and the wait for its result."""

    site: str
    n: int

    @property
    def step(self) -> str:
        """The lineage of what the child does."""
        return "child"


class Patched(Struct, frozen=True, tag=True):
    """A block for runs that have not come here yet."""

    site: str
    name: str
    block: Block


class Turn(Struct, frozen=True, tag=True):
    """Where a part of the agent's own line begins: by `nl.next_turn`, if it is a border, else just so.

    What follows, up to the next one, is one turn; several `rounds` are a turn each.
    """

    site: str
    rounds: int = 1
    is_border: bool = True


Node = (
    Call
    | Fan
    | Mapped
    | Task
    | Help
    | Branch
    | Loop
    | Try
    | Choice
    | Sleep
    | Receive
    | Spawn
    | Patched
    | Turn
)
Block = tuple[Node, ...]
START = Turn("")
"""Where every agent begins."""


class Program(Struct, frozen=True):
    """An agent and the steps that it calls; `made` counts sites and names, so that new ones are new."""

    decls: dict[str, Decl]
    block: Block
    made: int
    forgets: tuple[str, ...] = ()

    def declared(self, lineage: str, **changes: object) -> Program:
        """Return the program with a step declared otherwise."""
        changed = replace(self.decls[lineage], **changes)
        return replace(self, decls={**self.decls, lineage: changed})


def blocks_of(node: Node) -> tuple[Block, ...]:
    """Return the blocks inside a node."""
    match node:
        case Fan(arms=arms):
            return arms
        case Choice(yes=yes, no=no):
            return (yes, no)
        case Task() | Help() | Branch() | Loop() | Try() | Patched():
            return (node.block,)
    return ()


def with_blocks(node: Node, blocks: tuple[Block, ...]) -> Node:
    """Return a node with other blocks inside."""
    match node:
        case Fan():
            return replace(node, arms=blocks)
        case Choice():
            return replace(node, yes=blocks[0], no=blocks[1])
        case Task() | Help() | Branch() | Loop() | Try() | Patched():
            return replace(node, block=blocks[0])
    return node


def nodes(block: Block) -> Iterator[Node]:
    """Yield all nodes, outer ones first."""
    for node in block:
        yield node
        for inner in blocks_of(node):
            yield from nodes(inner)


def parts_of(block: Block) -> list[tuple[Turn, Block]]:
    """Cut an agent's own line where its parts begin."""
    parts: list[tuple[Turn, Block]] = [(START, ())]
    for node in block:
        if isinstance(node, Turn):
            parts.append((node, ()))
        else:
            parts[-1] = (parts[-1][0], (*parts[-1][1], node))
    return parts


def at(block: Block, site: str, change: Callable[[Block, int], Block]) -> Block:
    """Return a block in which `change` was applied where a site is: to the block it is in, and its index."""
    for index, node in enumerate(block):
        if node.site == site:
            return change(block, index)
    return tuple(
        with_blocks(node, tuple(at(inner, site, change) for inner in blocks_of(node))) for node in block
    )


def program_of(rng: Random) -> Program:
    """Make a program."""
    maker = _Maker(rng)
    block = maker.block(rng.choice((1, 1, 2)), most=4)
    while not any(isinstance(node, Call) and maker.decls[node.step].is_effect for node in block):
        block = (*block, maker.call(effect=True))
    if rng.random() < 0.3:
        block = maker.turns((*block, *maker.block(rng.choice((0, 0, 1)))))
    return Program(maker.decls, block, maker.made)


class _Maker:
    def __init__(self, rng: Random) -> None:
        self._rng, self.made = rng, 0
        self._in_loop = False
        self.decls: dict[str, Decl] = {}
        for kind in ("action", "once", "decision", "read", *rng.sample(("action", "once", "once"), 2)):
            self._declare(kind)  # type: ignore[arg-type]

    def _declare(self, kind: StepKind) -> None:
        rng, lineage = self._rng, f"s{len(self.decls)}"
        key = f"{lineage}:{{to}}:{{n}}" if kind in EFFECTS and rng.random() < 0.35 else ""
        named = kind in EFFECTS and not key and rng.random() < 0.12
        stem = {"action": "mail", "once": "pay", "decision": "ask", "read": "look"}[kind]
        self.decls[lineage] = Decl(
            lineage,
            f"{stem}_{lineage}",
            kind,
            key=key,
            id="{to}-{n}" if named else "",
            has_verify=rng.random() < 0.8,
            fails=kind == "action" and not key and rng.random() < 0.1,
        )

    def site(self) -> str:
        self.made += 1
        return f"n{self.made}"

    def block(self, depth: int, most: int = 3) -> Block:
        return tuple(self._node(depth) for _ in range(self._rng.randint(1, most)))

    def turns(self, block: Block) -> Block:
        """Let a line go over several turns."""
        for _ in range(self._rng.choice((1, 1, 2))):
            index = self._rng.randint(1, len(block))
            begins = Turn(self.site(), self._rng.choice((1, 1, 1, 2)))
            block = (*block[:index], begins, *block[index:])
        return block

    def call(self, *, effect: bool = False) -> Call:
        """Make a call; now and then it is what another call is, too."""
        rng, site = self._rng, self.site()
        known = [one for one in self.decls.values() if not effect or one.is_effect]
        decl = rng.choice([*known, *(one for one in known if one.is_effect)])
        is_same = rng.random() < 0.12 and not decl.id
        n = TIMES if is_same else self.made * TIMES
        to = PEOPLE[0] if is_same else rng.choice(PEOPLE)
        return Call(site, decl.lineage, to, n, counts=bool(decl.id) or rng.random() < 0.8)

    def _node(self, depth: int) -> Node:
        rng = self._rng
        simple = ("call",) * 6 + ("sleep", "receive", "spawn")
        nested = ("fan", "fan", "fan", "mapped", "task", "help", "branch", "loop", "try", "choice")
        match rng.choice(simple if depth <= 0 else simple + nested):
            case "fan":
                return self._fan(depth)
            case "mapped":
                call = self.call()
                while self.decls[call.step].fails:
                    call = self.call()
                return Mapped(call.site, call.step, call.to, call.n, rng.randint(2, 3))
            case "task":
                return Task(site := self.site(), f"task_{site}", self.block(depth - 1))
            case "help":
                return Help(site := self.site(), f"help_{site}", self.block(depth - 1))
            case "branch":
                return Branch(self.site(), rng.choice(("left", "right")), self.block(depth - 1))
            case "loop" if not self._in_loop:
                self._in_loop = True
                made = Loop(self.site(), rng.randint(2, 3), self.block(depth - 1))
                self._in_loop = False
                return made
            case "try":
                return Try(self.site(), self.block(depth - 1))
            case "choice":
                step = next(one.lineage for one in self.decls.values() if one.kind == "decision")
                site = self.site()
                n = self.made * TIMES
                return Choice(site, step, rng.choice(PEOPLE), n, self.block(0), self.block(0))
            case "sleep":
                return Sleep(self.site(), rng.choice((1, 3600)))
            case "receive":
                return Receive(self.site())
            case "spawn":
                return Spawn(self.site(), self.made * TIMES)
        return self.call()

    def _fan(self, depth: int) -> Fan:
        rng, site, count = self._rng, self.site(), self._rng.randint(2, 3)
        inline = rng.random() < 0.5
        arms = tuple((self.call(),) if inline else self.block(depth - 1, most=2) for _ in range(count))
        return Fan(site, rng.choice(HOWS), arms, f"arm_{site}", inline)
