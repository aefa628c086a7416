"""What all edits of a program share: who chooses, the list of them, and how a tree is changed.

`HARMLESS` are those that ask for the same effects in an order that no run can distinguish from its own, so no
run may be refused for them; what becomes of the others the model says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from msgspec.structs import replace

from tests.edits.programs import Call, Choice, Decl, Mapped, Node, Program, StepKind, at, nodes

T = TypeVar("T")


class Editor(Random):
    """Chooses what to edit: more often than not, what has to do with the step where the run was cut off."""

    focus = ""

    def pick(self, found: Sequence[T]) -> T:
        """Choose one of several."""
        liked = [one for one in found if getattr(one, "lineage", getattr(one, "step", "")) == self.focus]
        return self.choice(liked if liked and self.random() < 0.6 else found)


Edit = Callable[[Program, Editor], Program | None]
EDITS: dict[str, Edit] = {}
HARMLESS: set[str] = set()
NEED_KINDS = frozenset({"rename_read", "remove_read"})
"""Harmless where records say what they are: a name that is declared no more could else be an effect's."""


def edit(made: Edit) -> Edit:
    """Add an edit."""
    EDITS[made.__name__] = made
    return made


def harmless(made: Edit) -> Edit:
    """Add one for which no run may be refused."""
    HARMLESS.add(made.__name__)
    return edit(made)


def pick_node(program: Program, rng: Editor, kinds: object) -> Node | None:
    """Choose a node of some kinds."""
    found = [node for node in nodes(program.block) if isinstance(node, kinds)]  # type: ignore[arg-type]
    return rng.pick(found) if found else None


def swap(program: Program, node: Node, *new: Node, made: int = 0) -> Program:
    """Put nodes in the place of one."""
    block = at(program.block, node.site, lambda block, index: (*block[:index], *new, *block[index + 1 :]))
    return replace(program, block=block, made=program.made + made)


def next_site(program: Program) -> str:
    """Return a site that is new."""
    return f"n{program.made + 1}"


def used_steps(program: Program, *kinds: StepKind) -> list[Decl]:
    """Return the steps that are called."""
    used = {node.step for node in nodes(program.block) if isinstance(node, Call | Mapped | Choice)}
    return [one for one in program.decls.values() if one.lineage in used and (not kinds or one.kind in kinds)]
