"""What a program means: which effects it asks for, how often, and what it returns, without an engine.

A program is walked as generators that ask for what comes next, so that the same walk serves the reference
(`meaning_of`, in which everything is answered at once) and the model of a replay (`model`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Literal

from msgspec import Struct, field

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
    parts_of,
)
from tests.edits.source import is_inline

SIGNAL = "go!"
"""What every signal says."""
CHILD = Decl("child", "spawn:child", "action")
"""A child run: an effect of its own kind."""
Logical = tuple[str, str, int]
"""A logical effect: the lineage of its step and its arguments."""


class Ask(Struct, frozen=True):
    """What a line comes to: a step, a wait, the question whether it came here before, the end of its turn."""

    what: Literal["step", "wait", "patched", "turn"]
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


class Stand(Struct, frozen=True):
    """Where a turn begins: its number, the part of the program and its round, what was given so far."""

    turn: int = 0
    part: str = ""
    round: int = 0
    out: dict[str, str] = {}


START = Stand()


class TurnMeaning(Struct, frozen=True):
    """What a turn asks for, and how often it calls; with an id from outside it is one however often."""

    stand: Stand
    asks: Counter[Logical] = field(default_factory=Counter)
    calls: Counter[Logical] = field(default_factory=Counter)


class Meaning(Struct, frozen=True):
    """What a program asks for, turn by turn, and what it returns."""

    turns: list[TurnMeaning]
    keyed: set[Logical]
    result: dict[str, str]

    @property
    def asks(self) -> Counter[Logical]:
        """What is asked for in all; with a key it is one however often."""
        asks = sum((turn.asks for turn in self.turns), Counter[Logical]())
        asks.update({logical: 1 - asks[logical] for logical in self.keyed})
        return asks

    @property
    def calls(self) -> Counter[Logical]:
        """How often it calls, in all."""
        return sum((turn.calls for turn in self.turns), Counter[Logical]())

    def turn(self, number: int) -> TurnMeaning | None:
        """Return the turn of a number; None for one that it does not come to."""
        index = number - self.turns[0].stand.turn
        return self.turns[index] if 0 <= index < len(self.turns) else None


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


def meaning_of(program: Program, stand: Stand = START, skipped: frozenset[str] = frozenset()) -> Meaning:
    """Say what a program means to a run that begins a turn, and skips some patches in that turn."""
    result = dict(stand.out)
    meaning = Meaning([TurnMeaning(stand)], set(), result)

    def answer(asked: Ask) -> str:
        turn = meaning.turns[-1]
        if asked.what == "turn":
            begins = Stand(turn.stand.turn + 1, asked.name, asked.n, dict(result))
            meaning.turns.append(TurnMeaning(begins))
            return ""
        if asked.what == "patched" and len(meaning.turns) == 1 and asked.name in skipped:
            return ""
        if asked.what == "step" and asked.decl.is_effect:
            logical = asked.logical
            turn.calls[logical] += 1
            turn.asks[logical] = 1 if asked.decl.key or asked.decl.id else turn.calls[logical]
            if asked.decl.key:
                meaning.keyed.add(logical)
        return given(asked)

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
                value = answer(asked)

    drive(walk(program, result, stand))
    return meaning


def walk(program: Program, out: dict[str, str], stand: Stand = START) -> Line:
    """Walk a program, from the start of a turn to its end."""
    return _Walk(program, out).turns(stand)


class _Walk:
    def __init__(self, program: Program, out: dict[str, str]) -> None:
        self._program, self._out = program, out

    def turns(self, stand: Stand) -> Line:
        parts = parts_of(self._program.block)
        sites = [turn.site for turn, _ in parts]
        first = sites.index(stand.part)
        for number, (turn, block) in enumerate(parts[first:]):
            if number and turn.is_border:
                yield Ask("turn", name=turn.site)
            begins = 0 if number else stand.round
            yield from self.block(block, begins)
            for i in range(begins + 1, turn.rounds):
                yield Ask("turn", name=turn.site, n=i)
                yield from self.block(block, i)

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
