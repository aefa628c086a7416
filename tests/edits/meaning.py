"""What a program means: which effects it asks for, how often, and what it returns, without an engine.

A program is walked as generators that ask for what comes next, so that the same walk serves the reference
(`meaning_of`, in which everything is answered at once) and the model of a replay (`model`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Literal

from msgspec import Struct

from tests.edits import ledger
from tests.edits.programs import (
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
    Task,
    Try,
)
from tests.edits.source import is_inline

SIGNAL = "go!"
"""What every signal says."""
CHILD = Decl("child", "spawn:child", "action")
"""A child run: an effect of its own kind."""
Logical = tuple[str, str, int]
"""A logical effect: the lineage of its step and its arguments."""


class Ask(Struct, frozen=True):
    """What a line of execution comes to: a step, a wait, or the question whether it came here before."""

    what: Literal["step", "wait", "patched"]
    decl: Decl = CHILD
    to: str = ""
    n: int = 0
    name: str = ""

    @property
    def logical(self) -> Logical:
        """Name the effect."""
        return (self.decl.lineage, self.to, self.n)


class Fork(Struct, frozen=True):
    """Several lines at once."""

    lines: tuple[Line, ...]


Line = Generator[Ask | Fork, str, None]


class Meaning(Struct, frozen=True):
    """What a program asks for, how often it calls, and what it returns."""

    asks: Counter[Logical]
    calls: Counter[Logical]
    result: dict[str, str]


def given(ask: Ask) -> str:
    """Return what an ask gives."""
    if ask.what == "wait":
        return SIGNAL
    if ask.what == "patched":
        return "yes"
    if ask.decl.kind == "decision":
        return ledger.answer(*ask.logical)
    if ask.decl.fails:
        return "failed"
    return ledger.value(*ask.logical)


def meaning_of(program: Program, skipped: frozenset[str] = frozenset()) -> Meaning:
    """Say what a program means to a run in which nothing has happened yet but that it skips some patches."""
    asks: Counter[Logical] = Counter()
    calls: Counter[Logical] = Counter()
    result: dict[str, str] = {}

    def drive(line: Line) -> None:
        value: str | None = None
        while True:
            try:
                asked = line.send(value)  # type: ignore[arg-type]
            except StopIteration:
                return
            if isinstance(asked, Fork):
                for inner in asked.lines:  # in any order: nothing depends on it
                    drive(inner)
                value = ""
            else:
                _count(asks, calls, asked)
                value = "" if asked.what == "patched" and asked.name in skipped else given(asked)

    drive(walk(program, result))
    return Meaning(asks, calls, result)


def _count(asks: Counter[Logical], calls: Counter[Logical], asked: Ask) -> None:
    """Count an effect that is asked for; with a key, or an id from outside, it is one however often."""
    if asked.what == "step" and asked.decl.is_effect:
        calls[asked.logical] += 1
        asks[asked.logical] = 1 if asked.decl.key or asked.decl.id else calls[asked.logical]


def walk(program: Program, out: dict[str, str]) -> Line:
    """Walk a program, from its first line to its end."""
    return _Walk(program, out).block(program.block, 0)


class _Walk:
    def __init__(self, program: Program, out: dict[str, str]) -> None:
        self._program, self._out = program, out

    def block(self, block: Block, i: int) -> Line:
        for node in block:
            yield from self._node(node, i)

    def _step(self, step: str, to: str, n: int) -> Generator[Ask | Fork, str, str]:
        return (yield Ask("step", self._program.decls[step], to, n))

    def _kept(self, site: str, node: Call, i: int) -> Line:
        self._out[site] = yield from self._step(node.step, node.to, node.n + i * node.counts)

    def _node(self, node: Node, i: int) -> Line:
        label = f"{node.site}.{i}"
        match node:
            case Call():
                yield from self._kept(label, node, i)
            case Fan():
                yield from self._fan(node, label, i)
            case Mapped():
                numbers = [node.n + node.times * i + k for k in range(node.times)]
                values: dict[str, str] = {}
                yield Fork(tuple(self._item(node, n, values) for n in numbers))
                self._out[label] = "|".join(values[str(n)] for n in numbers)
            case Task():
                yield Fork((self.block(node.block, i),))
            case Help() | Branch() | Try():
                yield from self.block(node.block, i)
            case Loop():
                for number in range(node.times):
                    yield from self.block(node.block, number)
            case Choice():
                said = yield from self._step(node.step, node.to, node.n + i)
                yield from self.block(node.yes if said == "yes" else node.no, i)
            case Sleep():
                yield Ask("wait", name="sleep", n=node.seconds)
            case Receive():
                self._out[label] = yield Ask("wait", name="receive:go")
            case Spawn():
                self._out[label] = yield Ask("step", CHILD, "child", node.n + i)
                yield Ask("wait", name="child", n=node.n + i)
            case Patched():
                if (yield Ask("patched", name=node.name)):
                    yield from self.block(node.block, i)

    def _item(self, node: Mapped, n: int, values: dict[str, str]) -> Line:
        values[str(n)] = yield from self._step(node.step, node.to, n)

    def _fan(self, node: Fan, label: str, i: int) -> Line:
        if not is_inline(self._program, node):
            if node.how == "sequence":
                for arm in node.arms:
                    yield from self.block(arm, i)
            else:
                yield Fork(tuple(self.block(arm, i) for arm in node.arms))
            return
        calls = [call for (call,) in node.arms if isinstance(call, Call)]
        values: dict[str, str] = {}
        lines = tuple(self._into(call, i, values) for call in calls)
        if node.how == "sequence":
            for line in lines:
                yield from line
        else:
            yield Fork(lines)
        self._out[label] = "|".join(sorted(values.values()))

    def _into(self, call: Call, i: int, values: dict[str, str]) -> Line:
        values[call.site] = yield from self._step(call.step, call.to, call.n + i * call.counts)
