"""Scripts: what befalls a run, life by life. Each decides by what has happened in the trial so far.

No script kills a run more than a few times where it makes no progress: nine such deaths would quarantine it,
which is what is promised, and shows nothing about the user's code.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from ninelives.chaos.ledger import Line, What
from ninelives.chaos.order import LEASE_SECONDS, OUTCOMES, Deed, Fault, Moment

STUBBORN = 4
"""So many deaths in a row without progress, and the next life is left alone until it has made some."""
HANG_LEASE_SECONDS = 1.0
CUT_SECONDS = 0.4


class Script(Protocol):
    """What befalls a run."""

    name: str
    lease_seconds: float

    @property
    def wants_more(self) -> bool:
        """Tell whether it is to be played once more."""

    def fault(self, lines: list[Line]) -> Fault | None:
        """Return what befalls the next life; None: nothing any more."""

    def kill_after_seconds(self) -> float | None:
        """Return when the next life is killed from outside, counted from its start."""


class Calm:
    """Nothing befalls it."""

    lease_seconds = LEASE_SECONDS

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def wants_more(self) -> bool:
        """Once is enough."""
        return False

    def fault(self, lines: list[Line]) -> Fault | None:  # noqa: ARG002
        """Return nothing."""
        return None

    def kill_after_seconds(self) -> float | None:
        """Return nothing."""
        return None


class Walk(Calm):
    """The same fault at every moment of a kind, one after the other: each life comes one further."""

    def __init__(self, deed: Deed, moment: Moment, most: int, *, line: str = "") -> None:
        super().__init__(f"{deed} {moment}" if not line else f"{deed} at {line}")
        self._deed, self._moment, self._most, self._line = deed, moment, most, line

    def fault(self, lines: list[Line]) -> Fault | None:
        """Return the fault at the next moment that was not passed."""
        made = [line for line in lines if line.what is What.FAULT]
        if len(made) >= self._most:
            return None
        if deaths_without_progress(lines) >= STUBBORN:
            return Fault(deed=Deed.KILL, moment=Moment.PROGRESS)
        if self._line:
            return Fault(deed=self._deed, moment=self._moment, line=self._line)
        passed = {name for line in made for name in line.data.get("passed", [line.step])}
        return Fault(deed=self._deed, moment=self._moment, passed=tuple(sorted(passed)))


class Once(Calm):
    """One fault, at one moment."""

    def __init__(self, name: str, fault: Fault, *, lease_seconds: float = LEASE_SECONDS) -> None:
        super().__init__(name)
        self._fault, self.lease_seconds = fault, lease_seconds

    def fault(self, lines: list[Line]) -> Fault | None:
        """Return the fault until it has happened."""
        return None if any(line.what is What.FAULT for line in lines) else self._fault


class Nested(Calm):
    """Killed after a step, and then again and again while it recovers from that."""

    _CYCLE = (
        (Moment.END, ""),
        (Moment.AFTER, "claim_runs"),
        (Moment.AFTER, "load_journal"),
        (Moment.BEGIN, ""),
    )

    def __init__(self, most: int) -> None:
        super().__init__("killed during recovery, four times in a row")
        self._most = most

    def fault(self, lines: list[Line]) -> Fault | None:
        """Return the next of the cycle; let there be progress where a whole one has brought none."""
        faults = [line for line in lines if line.what is What.FAULT]
        if len(faults) >= self._most:
            return None
        made = [line for line in faults if line.target != Moment.PROGRESS.name]
        is_first = len(made) % len(self._CYCLE) == 0
        if is_first and deaths_without_progress(lines) > STUBBORN:
            return Fault(deed=Deed.KILL, moment=Moment.PROGRESS)
        moment, only = self._CYCLE[len(made) % len(self._CYCLE)]
        if only or not is_first:
            return Fault(deed=Deed.KILL, moment=moment, only=only)
        passed = {line.step for line in made if line.target == moment.name}
        return Fault(deed=Deed.KILL, moment=moment, passed=tuple(sorted(passed)))


class Dice(Calm):
    """Killed from outside at random times; every third time while it is still coming up."""

    def __init__(self, kills: int, span_seconds: float, random: Random) -> None:
        super().__init__("killed at random moments")
        self._kills, self._span_seconds, self._random = kills, span_seconds, random
        self._before = self._here = self._plays = 0
        self._is_spared = False

    @property
    def wants_more(self) -> bool:
        """Tell whether kills are left: a run may end before its time has come."""
        return self._before + self._here < self._kills and self._plays < self._kills

    def fault(self, lines: list[Line]) -> Fault | None:
        """Return nothing but progress, where there has been none for long."""
        if not lines:
            self._before, self._here, self._plays = self._before + self._here, 0, self._plays + 1
        self._here = sum(line.what is What.FAULT and line.target == "TIME" for line in lines)
        self._is_spared = deaths_without_progress(lines) >= STUBBORN
        return Fault(deed=Deed.KILL, moment=Moment.PROGRESS) if self._is_spared else None

    def kill_after_seconds(self) -> float | None:
        """Draw the time of the next kill."""
        if self._is_spared or self._before + self._here >= self._kills:
            return None
        span = self._span_seconds if self._random.random() < 2 / 3 else self._span_seconds / 4
        return self._random.uniform(0.0, span)


def deaths_without_progress(lines: list[Line]) -> int:
    """Count the faults since a step was last recorded."""
    deaths = 0
    for line in reversed(lines):
        if line.what is What.FAULT:
            deaths += 1
        elif line.what is What.STORED and any(kind in OUTCOMES for kind, _ in line.data["records"]):
            break
    return deaths
