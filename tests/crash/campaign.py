"""Campaigns of kills: at every call of the store, and at random moments, also during the recovery.

After the first kill, and some of those in the recovery, the judge looks at what is there before anybody
repairs anything; at the end a last life carries everything on, the judge looks at all that was ever
acknowledged, and the outcome must be that of a life nobody killed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

from tests.crash.forkserver import Death, ForkServer
from tests.crash.killing import read_mark
from tests.crash.ledger import Fact, count
from tests.crash.stock import company
from tests.crash.stores import BLIND, bury, scratch

LIVE, CHECK = "tests.crash.workload:live", "tests.crash.judge:check"
USE = "tests.crash.stock:use"
_LOOKS, _BURIES = 0.2, 0.4
Told = Callable[[int, int], None]


class Tally(Struct):
    """What a campaign came to."""

    kills: int = 0
    cycles: int = 0
    points: int = 0
    acknowledged: int = 0
    seconds: float = 0.0
    windows: dict[str, int] = {}
    violations: list[str] = []

    @property
    def kills_per_second(self) -> float:
        """Return how many kills went through in a second, each with its judging."""
        return self.kills / self.seconds if self.seconds else 0.0


class Campaign:
    """Cycles of kill and recovery on one kind of store, with one shape of workload."""

    def __init__(
        self,
        server: ForkServer,
        seed: int,
        *,
        runs: int = 2,
        mode: str = "inline",
        store: str = "sqlite",
        mutant: str = "",
        in_memory: bool = True,
    ) -> None:
        self._server, self._seed, self._runs, self._store = server, seed, runs, store
        self._life: dict[str, Any] = {
            "seed": seed,
            "runs": runs,
            "mode": mode,
            "mutant": mutant,
        }
        self._in_memory = in_memory
        self._windows: Counter[str] = Counter()
        self.tally = Tally()

    def undisturbed(self) -> tuple[list[str], str]:
        """Live one life that nobody kills; returns its store calls and its outcome."""
        with scratch(self._store) as home:
            calls: list[str] = self._server.run(LIVE, home=str(home), **self._life).result()
            return calls, self._judge(home, "undisturbed", ended=True)

    def at_every_call(self, told: Told = lambda _done, _all: None, *, every: int = 1) -> Tally:
        """Kill before and after every call of the store (or every n-th point, for a quick look)."""
        began = time.monotonic()
        calls, expected = self.undisturbed()
        points = [(n, side) for n in range(1, len(calls) + 1) for side in ("before", "after")][::every]
        for done, (call, side) in enumerate(points, 1):
            with scratch(self._store, in_memory=self._in_memory) as home:
                point = {"call": call, "side": side}
                death = self._server.run(LIVE, home=str(home), point=point, **self._life)
                self._note(death, home, f"{side} call {call}")
                if not death.was_killed:
                    self._blame(f"{side} call {call}: the kill point was not reached (code {death.code})")
                if self._store in BLIND:
                    bury(home)
                self._recover(home, expected, f"{side} call {call} ({calls[call - 1]})")
            told(done, len(points))
        self.tally.points = len(points)
        return self._closed(began)

    def at_random(self, kills: int, told: Told = lambda _done, _all: None, *, nested: int = 19) -> Tally:
        """Kill at random moments after the first acknowledgement, and up to `nested` times in recovery."""
        began = time.monotonic()
        rng = Random(self._seed)
        _, expected = self.undisturbed()
        reach = self._reach()
        while self.tally.kills < kills:
            with scratch(self._store, in_memory=self._in_memory) as home:
                label = f"cycle {self.tally.cycles}"
                for nesting in range(1 + nested):
                    after = rng.uniform(0, reach) / (nesting + 1)
                    death = self._server.run(
                        LIVE,
                        home=str(home),
                        trace=True,
                        kill_after_seconds=after,
                        kill_from="start" if nesting and rng.random() < 0.3 else "ack",
                        **self._life,
                    )
                    looks = nesting == 0 or rng.random() < _LOOKS
                    self._note(death, home, f"{label}, kill {nesting}", looks=looks)
                    if not death.was_killed:
                        break
                    if self._store in BLIND or rng.random() < _BURIES:  # else the next life has to find out
                        bury(home)
                self._recover(home, expected, label)
            told(min(self.tally.kills, kills), kills)
        return self._closed(began)

    def among_tools(self, rounds: int, told: Told = lambda _done, _all: None) -> Tally:
        """Kill at random and use a stock tool on what is left, so many times; some lives have tools beside
        them.

        Every life that follows has to go on as if no tool had been there.
        """
        began = time.monotonic()
        rng = Random(self._seed)
        _, expected = self.undisturbed()
        reach = self._reach()
        while self.tally.kills < rounds:
            with scratch(self._store, in_memory=self._in_memory) as home:
                label = f"cycle {self.tally.cycles}"
                with company(home, rng.randrange(2**31)) if rng.random() < 0.2 else nullcontext():
                    death = self._live_until(home, rng.uniform(0, reach))
                    self._note(death, home, label, looks=False)
                for nesting in range(2, 8):
                    if not death.was_killed or not self._use_tool(home, rng, label):
                        break
                    death = self._live_until(home, rng.uniform(0, reach) / nesting)
                    self._note(death, home, f"{label}, kill {nesting}", looks=False)
                self._recover(home, expected, label)
            told(min(self.tally.kills, rounds), rounds)
        return self._closed(began)

    def _live_until(self, home: Path, seconds: float) -> Death:
        return self._server.run(
            LIVE, home=str(home), trace=True, kill_after_seconds=seconds, kill_from="ack", **self._life
        )

    def _use_tool(self, home: Path, rng: Random, label: str) -> bool:
        """Use a tool between two lives; tells whether it came to its end."""
        death = self._server.run(USE, home=str(home), number=rng.randrange(2**31))
        if death.code != 0:
            self._blame(f"{label}: a tool failed: {death.stderr[-2000:]}")
            return False
        self._windows[death.result()] += 1
        return True

    def _reach(self) -> float:
        """Return how long a life takes here, so that kills fall into all of it."""
        seconds = []
        for _ in range(3):
            with scratch(self._store, in_memory=self._in_memory) as home:
                seconds.append(self._server.run(LIVE, home=str(home), trace=True, **self._life).seconds)
        return min(seconds) * 0.8

    def _note(self, death: Death, home: Path, label: str, *, looks: bool = True) -> None:
        if death.was_killed:
            self.tally.kills += 1
            self._windows[read_mark(home / "mark")] += 1
        elif death.code != 0:
            end = "hung" if death.hung else f"ended with {death.code}"
            self._blame(f"{label}: the life {end}: {death.stderr[-6000:]}")
        if looks:
            self._judge(home, label)

    def _recover(self, home: Path, expected: str, label: str) -> None:
        death = self._server.run(LIVE, home=str(home), **self._life)
        if death.code != 0:
            self._blame(
                f"{label}: no recovery (code {death.code}, hung {death.hung}): {death.stderr[-6000:]}"
            )
        elif self._judge(home, f"{label}, recovered", ended=True) != expected:
            self._blame(f"{label}: the outcome is not that of a run that never crashed")
        self.tally.cycles += 1
        self.tally.acknowledged += count(home / "ledger", Fact.APPENDED)

    def _judge(self, home: Path, label: str, *, ended: bool = False) -> str:
        """Blame the store for what is wrong; returns the outcome, if the runs have ended."""
        shape = {"seed": self._seed, "runs": self._runs} if ended else None
        death = self._server.run(CHECK, home=str(home), ended=shape)
        if ended and death.code != 0:
            self._blame(f"{label}: it cannot be read: {death.stderr[-500:]}")
            return ""
        told: list[str] = death.result()
        violations, outcome = (told[:-1], told[-1]) if ended else (told, "")
        for violation in violations:
            self._blame(f"{label}: {violation}")
        return outcome

    def _blame(self, what: str) -> None:
        self.tally.violations.append(f"seed {self._seed}: {what}")

    def _closed(self, began: float) -> Tally:
        self.tally.seconds = time.monotonic() - began
        self.tally.windows = dict(self._windows.most_common())
        return self.tally
