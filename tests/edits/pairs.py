"""A pair: a program that was cut off, and its run under edited source; all made from one number."""

from __future__ import annotations

import random
from collections import Counter
from random import Random
from typing import Protocol

import msgspec
from msgspec import Struct

from ninelives.core.errors import NineLivesError
from ninelives.core.model.inbox import Item, ItemKind, ItemState
from ninelives.core.model.run import Kind, RunRow, State
from ninelives.ops.check import CheckFinding
from ninelives.store import Store
from tests.edits.editor import Editor
from tests.edits.edits import edited
from tests.edits.journal import Past, pasts_of, stand_of
from tests.edits.ledger import Event, Ledger
from tests.edits.lives import NEVER, RUN, At, Kill, Stage
from tests.edits.meaning import START, Meaning, Stand, meaning_of
from tests.edits.programs import Program, Receive, Sleep, Spawn, nodes, program_of
from tests.edits.source import source_of

_WORDS: tuple[At, ...] = ("begin", "effect", "effect", "end")


class Place(Protocol):
    """Where a run has its lives: in this process, or in others."""

    ledger: Ledger

    @property
    def store(self) -> Store:
        """The store."""

    def load(self, source: str, name: str) -> None:
        """Let the code of the next life be this."""

    def check(self) -> CheckFinding:
        """Ask `ninelives check`."""

    def live(self, kill: Kill) -> bool:
        """Go on for as long as anything can; True if it died on the way."""

    def go_on(self) -> None:
        """Say of a run that diverged that it may go on."""

    def row(self) -> RunRow:
        """Return the run."""

    def items(self) -> list[Item]:
        """Return what waits for a person."""


class Version(Struct, frozen=True):
    """A program as of one day: the edits since the day before, and when the life with it dies."""

    program: Program
    edits: tuple[str, ...]
    kill: Kill


class Pair(Struct, frozen=True):
    """A history: the first version is cut off or waits, each later one takes over."""

    seed: int
    versions: tuple[Version, ...]

    @property
    def command(self) -> str:
        """Say how to run this pair again."""
        return f"python -m tests.edits --pair {self.seed}"


class Taken(Struct, frozen=True):
    """What one version found, and what it came to: from the turn where the run stood to where it ended."""

    version: Version
    stand: Stand
    end: Stand
    meaning: Meaning
    before: tuple[Past, ...]
    after: tuple[Past, ...]
    state: State
    died: bool
    check: CheckFinding | None
    diverged: bool
    waiting: tuple[str, ...]
    result: dict[str, str] | None
    why: str


class History(Struct, frozen=True):
    """All that is known of a pair that was performed."""

    pair: Pair
    lives: tuple[Taken, ...]
    events: list[Event]


def pair_of(seed: int) -> Pair:
    """Make the pair of a number."""
    rng = Editor(seed)
    program = program_of(rng)
    versions = [Version(program, (), _kill(rng, program))]
    rng.focus = _cut_at(program, versions[0].kill)
    for number in range(rng.choice((1, 1, 1, 2))):
        program, names = edited(program, rng)
        is_killed = number == 0 and rng.random() < 0.25
        versions.append(Version(program, names, _kill(rng, program, rests=False) if is_killed else NEVER))
    return Pair(seed, tuple(versions))


def _cut_at(program: Program, kill: Kill) -> str:
    """Return the lineage of the step where a life dies, as far as its source shows it."""
    asked = [lineage for (lineage, *_), count in meaning_of(program).calls.items() for _ in range(count)]
    reached = kill.number if kill.at in _WORDS else (kill.number + 1) // 2
    return asked[min(reached, len(asked)) - 1] if asked else ""


def _kill(rng: Random, program: Program, *, rests: bool = True) -> Kill:
    """Choose where a life dies; what can be counted is reached."""
    meaning = meaning_of(program)
    asks, borders = max(1, meaning.asks.total()), len(meaning.turns) - 1
    if borders and rng.random() < 0.2:
        return Kill(rng.choice(("ending", "ended")), rng.randint(1, borders))
    births = sum(isinstance(node, Spawn) for node in nodes(program.block))
    if births and rng.random() < 0.15:
        return Kill("born", rng.randint(2, 1 + births))
    can_rest = rests and any(isinstance(node, Sleep | Receive) for node in nodes(program.block))
    if can_rest and rng.random() < 0.2:
        return Kill("rest")
    if rng.random() < 0.5:
        return Kill(rng.choice(_WORDS), rng.randint(1, asks))
    return Kill(rng.choice(("before", "after")), rng.randint(2, 2 + round(1.3 * asks)))


def perform(pair: Pair, stage: Place | None = None) -> History:
    """Let each version have its life, one after the other, over one store."""
    random.seed(pair.seed)
    place = stage if stage is not None else Stage()
    try:
        lives = tuple(_perform(place, version, number) for number, version in enumerate(pair.versions))
    finally:
        place.store.close()
    return History(pair, lives, place.ledger.events)


def _perform(stage: Place, version: Version, number: int) -> Taken:
    stage.load(source_of(version.program), f"version{number}")
    before, stand = (pasts_of(stage.store), stand_of(stage.store, RUN)) if number else ((), START)
    is_open = number > 0 and not stage.row().state.is_final
    check = stage.check() if is_open else None
    if number and stage.row().state is State.ESCALATED:
        stage.go_on()
    why, died = "", False
    try:
        died = stage.live(version.kill)
    except (AssertionError, NineLivesError) as error:
        why = str(error)
    row = stage.row()
    items = [item for item in stage.items() if item.state is ItemState.OPEN]
    result = None
    if row.state.is_final:
        last = stage.store.load_journal(RUN, since=0).records[-1]
        body = msgspec.json.decode(last.body) if last.kind is Kind.END else {}
        result = body.get("v")
        why = why or str(body.get("e", ""))
    return Taken(
        version,
        stand,
        stand_of(stage.store, RUN),
        meaning_of(version.program, stand),
        before,
        pasts_of(stage.store),
        row.state,
        died,
        check,
        any(item.kind is ItemKind.DIVERGENCE and item.run == RUN for item in items),
        tuple(f"{item.kind}: {item.body.decode()}" for item in items),
        result,
        why,
    )


def effects_of(history: History, life: int | None = None) -> Counter[tuple[str, str, int]]:
    """Count what took effect, in one life or in all."""
    return Counter(
        (event.lineage, event.to, event.n)
        for event in history.events
        if event.fact == "effect" and life in (None, event.life)
    )
