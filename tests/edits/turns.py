"""Edits of turns: calls move over `nl.next_turn`, and turns are split, joined and repeated."""

from __future__ import annotations

from msgspec.structs import replace

from tests.edits.editor import Edit, Editor, edit, harmless, next_site, pick_node, swap
from tests.edits.programs import Block, Call, Node, Program, Turn, blocks_of, nodes, parts_of

OVER_TURNS: set[str] = set()
"""These edits are made more often where there are any."""


def _turning(made: Edit) -> Edit:
    """Say of an edit that it has to do with turns."""
    OVER_TURNS.add(made.__name__)
    return made


def joined(parts: list[tuple[Turn, Block]]) -> Block:
    """Put an agent's own line together again."""
    (_, first), *later = parts
    return (*first, *(node for turn, block in later for node in (turn, *block)))


def _moved_over(program: Program, rng: Editor, node: Node, *, is_later: bool = False) -> Program | None:
    """Move a node of the agent's own line to any place in another part."""
    parts = parts_of(program.block)
    here = next((number for number, (_, block) in enumerate(parts) if node in block), len(parts))
    others = [number for number in range(len(parts)) if number > here or (number < here and not is_later)]
    if here == len(parts) or not others:
        return None
    turn, block = parts[here]
    parts[here] = (turn, tuple(one for one in block if one != node))
    there = rng.choice(others)
    turn, block = parts[there]
    index = rng.randint(0, len(block))
    parts[there] = (turn, (*block[:index], node, *block[index:]))
    return replace(program, block=joined(parts))


@_turning
@edit
def move_over_turn(program: Program, rng: Editor) -> Program | None:
    """A call, or more, moves into another turn."""
    return _moved_over(program, rng, rng.pick(program.block))


@_turning
@edit
def move_over_turn_with_key(program: Program, rng: Editor) -> Program | None:
    """An effect with a key moves into a later turn, and the agent gives it up where it was."""
    found = [node for node in program.block if isinstance(node, Call) and program.decls[node.step].key]
    if not found:
        return None
    node = rng.pick(found)
    decl, changed = program.decls[node.step], _moved_over(program, rng, node, is_later=True)
    if changed is None:
        return None
    return replace(changed, forgets=tuple(dict.fromkeys((*changed.forgets, decl.name, *decl.aliases))))


@_turning
@edit
def split_turn(program: Program, rng: Editor) -> Program | None:
    """A turn becomes two: one more `nl.next_turn`, or one that was there before."""
    joined = [node for node in program.block if isinstance(node, Turn) and not node.is_border]
    if joined and rng.random() < 0.5:
        node = rng.choice(joined)
        return swap(program, node, replace(node, is_border=True))
    index = rng.randint(0, len(program.block))
    begins = Turn(next_site(program))
    block = (*program.block[:index], begins, *program.block[index:])
    return replace(program, block=block, made=program.made + 1)


@_turning
@harmless
def join_turns(program: Program, rng: Editor) -> Program | None:
    """Two turns become one; a run in the second one goes on there."""
    borders = [node for node in program.block if isinstance(node, Turn) and node.is_border]
    if not borders:
        return None
    node = rng.choice(borders)
    return swap(program, node, replace(node, is_border=False))


@_turning
@edit
def change_rounds(program: Program, rng: Editor) -> Program | None:
    """A part is taken once more, or once less."""
    node = pick_node(program, rng, Turn)
    if not isinstance(node, Turn):
        return None
    return swap(program, node, replace(node, rounds=3 - node.rounds))


def has_inner_turn(block: Block) -> bool:
    """Return whether a turn would end anywhere but in the agent's own line."""
    inner = (one for node in block for within in blocks_of(node) for one in nodes(within))
    return any(isinstance(one, Turn) for one in inner)
