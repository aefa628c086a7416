"""The scripts: what the runs of the workload do, step by step, and the same from any point again.

A step is done when its outcome is in the journal; a turn's record stands for all before it. The world that
steps touch is the ledger: a step that may not be repeated asks it whether it happened. So every run ends
with the same records, whoever was killed when.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from hashlib import shake_256
from random import Random
from typing import Protocol

from msgspec import Struct

from ninelives.core.model.commit import Change, End, Escalate, Outcome, Park, Verdict
from ninelives.core.model.inbox import ItemKind, ItemState, NewItem
from ninelives.core.model.key import DoubtKey, KeyState, ReleaseKey, ReserveKey, SettleKey, WaitKey
from ninelives.core.model.run import Journal, Kind, State
from ninelives.engine.commit.ticket import NO_EXTRAS, Draft, Extras

OUTCOMES = frozenset({Kind.RESULT, Kind.SIGNAL, Kind.ANSWER, Kind.TURN, Kind.SUPERSEDED})


class Do(StrEnum):
    """The kinds of steps."""

    THINK = "think"  # a result, and nothing before it
    ACT = "act"  # an intent, an effect that may not be repeated, a result
    PAY = "pay"  # the same under a business key, parked in between so that others find it held
    DECLINE = "decline"  # reserved, proved not done, released, and done in the next generation
    DOUBT = "doubt"  # done, doubted, settled
    HEAR = "hear"  # takes a signal
    ASK = "ask"  # opens an item, escalates, takes the answer
    MUSE = "muse"  # opens an item and closes it itself
    SLEEP = "sleep"  # parks, due at once
    TURN = "turn"  # starts the next turn
    FAIL = "fail"  # ends as failed; goes on when it is retried


class Step(Struct, frozen=True):
    """One step: its name in the journal, and its size or key."""

    do: Do
    name: str
    size: int = 40
    key: str = ""


def script_of(seed: int, number: int) -> list[Step]:
    """Return the steps of the n-th run: all kinds, in an order of its own, with bodies of many sizes."""
    rng = Random(f"{seed}/{number}")
    kinds: list[Do] = [do for do in Do if do not in (Do.TURN, Do.FAIL)]
    rng.shuffle(kinds)
    kinds.insert(rng.randrange(1, 5), Do.TURN)
    kinds.insert(rng.randrange(5, 9), Do.TURN)
    kinds.append(Do.FAIL if number % 3 == 0 else Do.THINK)
    kinds.append(Do.THINK)
    steps = []
    for place, do in enumerate(kinds):
        size = rng.choice([0, 40, 900, 70_000 if place % 4 == 0 else 3000])
        shared = do is Do.PAY and number % 4 < 2
        key = f"{do}:{'shared' if shared else number}"
        steps.append(Step(do, f"{place:02}-{do}", size, key))
    return steps


def body_of(seed: int, what: str, size: int) -> bytes:
    """Return what a step gives: always the same; long ones partly compressible."""
    noise = shake_256(f"{seed}/{what}".encode()).digest(min(size, 40_000) or 1)[:size]
    return noise + b"=" * (size - len(noise))


class World(Protocol):
    """What a step can do: commit, touch the world, ask the world, look at keys."""

    seed: int

    def commit(self, drafts: list[Draft], extras: Extras = NO_EXTRAS) -> Verdict:
        """Commit for this run."""

    def touch(self, step: str, key: str = "") -> None:
        """Have an effect."""

    def touched(self, step: str, key: str = "") -> bool:
        """Ask the world whether the effect happened."""

    def key_state(self, key: str) -> tuple[KeyState, bytes] | None:
        """Read a business key."""


class Walk:
    """One claimed run on its way through its script."""

    def __init__(self, world: World, journal: Journal, steps: list[Step]) -> None:
        self._world, self._journal, self._steps = world, journal, steps
        self._run = journal.run.id
        self._kinds: dict[str, list[Kind]] = {}
        for record in journal.records:
            self._kinds.setdefault(record.step, []).append(record.kind)

    def go(self) -> None:
        """Do what is not done, until the run ends or leaves us."""
        names = [step.name for step in self._steps]
        first = self._journal.records[0] if self._journal.records else None
        start = names.index(first.step) + 1 if first is not None and first.kind is Kind.TURN else 0
        for step in self._steps[start:]:
            if any(kind in OUTCOMES for kind in self._kinds.get(step.name, [])):
                continue
            stays = _WAYS[step.do](self, step)
            if not stays:
                return
        self._leave(End(State.COMPLETED), [(Kind.END, "end", self._run.encode())])

    # The ways of each kind of step; True: the run is still ours ---------------------------------

    def _think(self, step: Step) -> bool:
        self._world.touch(step.name)
        return self._settle(step)

    def _act(self, step: Step) -> bool:
        known = self._kinds.get(step.name, [])
        if not known and not self._went([(Kind.INTENT, step.name, b"")]):
            return False
        if not known or not self._world.touched(step.name):
            self._world.touch(step.name)
        return self._settle(step)

    def _pay(self, step: Step) -> bool:
        if Kind.INTENT not in self._kinds.get(step.name, []):
            reserve = ReserveKey(step.key, "pay", b"same", resumable=False)
            park = Park(0, "between reserving and paying", self._journal.run.news)
            verdict = self._world.commit(
                [(Kind.INTENT, step.name, b"")], Extras(keys=(reserve,), change=park)
            )
            if verdict.outcome is not Outcome.HELD:
                return False
            return self._share(step)
        self._touch_once(step)
        return self._settle(step, SettleKey(step.key, self._body(step, shared=True)))

    def _share(self, step: Step) -> bool:
        """The key is another's: take its result, or wait for it."""
        known = self._world.key_state(step.key)
        if known is not None and known[0] is KeyState.SETTLED:
            drafts: list[Draft] = [(Kind.INTENT, step.name, b""), (Kind.RESULT, step.name, known[1])]
            return self._went(drafts)
        park = Park(None, f"key {step.key}", self._journal.run.news)
        self._world.commit([], Extras(keys=(WaitKey(step.key),), change=park))
        return False

    def _decline(self, step: Step) -> bool:
        known = self._kinds.get(step.name, [])
        reserve = ReserveKey(step.key, "decline", b"same", resumable=False)
        if not known and not self._went([(Kind.INTENT, step.name, b"")], Extras(keys=(reserve,))):
            return False
        release = Extras(keys=(ReleaseKey(step.key),))
        if Kind.VOIDED not in known and not self._went([(Kind.VOIDED, step.name, b"")], release):
            return False
        if known.count(Kind.INTENT) < 2 and not self._went(
            [(Kind.INTENT, step.name, b"")], Extras(keys=(reserve,))
        ):
            return False
        self._touch_once(step)
        return self._settle(step, SettleKey(step.key, self._body(step, shared=True)))

    def _doubt(self, step: Step) -> bool:
        known = self._kinds.get(step.name, [])
        reserve = ReserveKey(step.key, "doubt", b"same", resumable=False)
        if not known and not self._went([(Kind.INTENT, step.name, b"")], Extras(keys=(reserve,))):
            return False
        if Kind.DOUBT not in known:
            self._touch_once(step)
            doubt = Extras(keys=(DoubtKey(step.key),))
            if not self._went([(Kind.DOUBT, step.name, b"")], doubt):
                return False
        return self._settle(step, SettleKey(step.key, self._body(step, shared=True)))

    def _hear(self, step: Step) -> bool:
        if not self._journal.signals:
            return self._leave(Park(None, "a signal", self._journal.run.news))
        signal = self._journal.signals[0]
        return self._went([(Kind.SIGNAL, step.name, signal.body)], Extras(takes=(signal.number,)))

    def _ask(self, step: Step) -> bool:
        id_ = f"{self._run}:{step.name}"
        escalate = Escalate("an answer", self._journal.run.news)
        if step.name not in self._kinds:
            item = NewItem(id=id_, kind=ItemKind.APPROVAL, step=step.name, digest=b"shown", body=id_.encode())
            self._world.commit([(Kind.INTENT, step.name, b"")], Extras(opens=(item,), change=escalate))
            return False
        (known,) = (one for one in self._journal.items if one.id == id_)
        if known.state is ItemState.OPEN:
            return self._leave(escalate)
        return self._went([(Kind.ANSWER, step.name, known.answer)])

    def _muse(self, step: Step) -> bool:
        id_ = f"{self._run}:{step.name}"
        if step.name not in self._kinds:
            item = NewItem(id=id_, kind=ItemKind.QUESTION, step=step.name, digest=b"d", body=b"?")
            if not self._went([(Kind.INTENT, step.name, b"")], Extras(opens=(item,))):
                return False
        return self._went([(Kind.RESULT, step.name, self._body(step))], Extras(closes=(id_,)))

    def _sleep(self, step: Step) -> bool:
        if step.name not in self._kinds:
            park = Park(0, "time", self._journal.run.news)
            return self._leave(park, [(Kind.INTENT, step.name, b"")])
        return self._settle(step)

    def _turn(self, step: Step) -> bool:
        return self._went([(Kind.LOG, "log", b"turning"), (Kind.TURN, step.name, self._body(step))])

    def _fail(self, step: Step) -> bool:
        if step.name not in self._kinds:
            return self._leave(End(State.FAILED), [(Kind.FAILURE, step.name, b"no luck")])
        return self._went([(Kind.SUPERSEDED, step.name, b"")])

    # What they share ----------------------------------------------------------------------------

    def _touch_once(self, step: Step) -> None:
        if not self._world.touched("", step.key):
            self._world.touch(step.name, step.key)

    def _settle(self, step: Step, *keys: SettleKey) -> bool:
        extras = Extras(keys=keys) if keys else NO_EXTRAS
        return self._went([(Kind.RESULT, step.name, self._body(step, shared=bool(keys)))], extras)

    def _body(self, step: Step, *, shared: bool = False) -> bytes:
        what = f"{step.key}" if shared else f"{self._run}/{step.name}"
        return body_of(self._world.seed, what, 120 if shared else step.size)

    def _went(self, drafts: list[Draft], extras: Extras = NO_EXTRAS) -> bool:
        return self._world.commit(drafts, extras).outcome is Outcome.COMMITTED

    def _leave(self, change: Change, drafts: list[Draft] | None = None) -> bool:
        self._world.commit(drafts or [], Extras(change=change))
        return False


_WAYS: dict[Do, Callable[[Walk, Step], bool]] = {do: getattr(Walk, f"_{do}") for do in Do}
