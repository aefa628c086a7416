"""Scenarios: which faults a run gets, process by process. Each decides by the trial's ledger so far.

No scenario kills a run more than a few times without progress: nine such deaths would quarantine it, which is
correct and shows nothing about the user's code. If time is too short for all points of a long run, the
skipped ones are spread evenly over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from random import Random

from ninelives.chaos.ledger import LedgerLine, What
from ninelives.chaos.protocol import LEASE_SECONDS, FaultKind, FaultMoment, InjectedFault

STUBBORN = 4
"""After this many deaths in a row without progress, the next process is spared until it makes some."""
HANG_LEASE_SECONDS = 1.0
CUT_SECONDS = 0.4


class Scenario:
    """Decides the faults of one run; this one makes none. `kind` is shared by those with another point."""

    lease_seconds = LEASE_SECONDS
    lives = 1
    """Estimated number of processes."""

    def __init__(self, name: str, kind: str = "") -> None:
        self.name, self.kind = name, kind or name

    @property
    def wants_more(self) -> bool:
        """Whether to play it once more."""
        return False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of fault that were tried."""
        return (self.kind,)

    @property
    def shortened(self) -> str:
        """What there was no time for, in words; empty when nothing was skipped."""
        return ""

    def fault(self, lines: list[LedgerLine], left_seconds: float = inf) -> InjectedFault | None:  # noqa: ARG002
        """Return the fault of the next process; None: no more faults."""
        return None

    def kill_after_seconds(self) -> float | None:
        """Return when to kill the next process from outside, in seconds from its start."""
        return None


class Walk(Scenario):
    """The same fault at every point of a moment, in order: each process gets one point further.

    `points` are the known points, in order; if time is too short, only some of them are used.
    """

    def __init__(
        self, fault: FaultKind, moment: FaultMoment, most: int, *, line: str = "", points: Sequence[str] = ()
    ) -> None:
        super().__init__(f"{fault} {moment}" if not line else f"{fault} at {line}")
        self.fault_kind, self.moment = fault, moment
        self._most, self._line, self._points = most, line, points
        self._left_out: set[str] = set()
        self.lives = min(most, len(points) or most) + 1

    @property
    def shortened(self) -> str:
        """How many of the points were used, if some were skipped."""
        skipped, known = len(self._left_out), len(self._points)
        return f"{self.name}: at {known - skipped} of {known} points" if skipped else ""

    def made(self, lines: list[LedgerLine]) -> list[LedgerLine]:
        """Return the injected faults of this kind."""
        wanted = self.fault_kind.name, self.moment.name
        return [line for line in lines if line.what is What.FAULT and (line.kind, line.target) == wanted]

    def fault(self, lines: list[LedgerLine], left_seconds: float = inf) -> InjectedFault | None:
        """Return the fault, at the next point that was not passed."""
        made = self.made(lines)
        if sum(line.what is What.FAULT for line in lines) >= self._most:
            return None
        if deaths_without_progress(lines) >= STUBBORN:
            return InjectedFault(kind=FaultKind.KILL, moment=FaultMoment.PROGRESS)
        if self._line:
            return InjectedFault(kind=self.fault_kind, moment=self.moment, line=self._line)
        passed = {name for line in made for name in line.data.get("passed", [line.step])}
        ahead = self._ahead(lines, left_seconds)
        self._left_out |= {name for name in self._points[:ahead] if name not in passed}
        return InjectedFault(
            kind=self.fault_kind, moment=self.moment, passed=tuple(sorted(passed | self._left_out))
        )

    def _ahead(self, lines: list[LedgerLine], left_seconds: float) -> int:
        """Return how many points the next fault should be past, to reach the last one in time."""
        done = sum(line.what is What.FAULT for line in lines)
        spent = lines[-1].at - lines[0].at if done else 0.0
        if not spent or left_seconds == inf:
            return 0
        whole = min(done + left_seconds * done / spent, self._most)
        return 0 if whole >= len(self._points) else int(len(self._points) * done / whole)


class Turns(Scenario):
    """Several walks in one run, in turn: for runs so long that there is no time for one run per walk."""

    def __init__(self, walks: Sequence[Walk]) -> None:
        super().__init__("killed or terminated, each time at another moment")
        self._walks, self._lines = walks, list[LedgerLine]()
        self.lives = max(walk.lives for walk in walks)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds whose fault was injected."""
        return tuple(walk.kind for walk in self._walks if walk.made(self._lines))

    @property
    def shortened(self) -> str:
        """The kinds that shared one run, each at some points only."""
        return f"{', '.join(self.kinds)}: in turn in one run"

    def fault(self, lines: list[LedgerLine], left_seconds: float = inf) -> InjectedFault | None:
        """Return the fault of the next walk."""
        self._lines = lines
        turn = sum(line.what is What.FAULT for line in lines)
        return self._walks[turn % len(self._walks)].fault(lines, left_seconds)


class Once(Scenario):
    """One fault, at one moment."""

    lives = 2

    def __init__(self, kind: str, fault: InjectedFault, *, lease_seconds: float = LEASE_SECONDS) -> None:
        super().__init__(f"{kind} ({fault.only})", kind)
        self._fault, self.lease_seconds = fault, lease_seconds

    def fault(self, lines: list[LedgerLine], left_seconds: float = inf) -> InjectedFault | None:  # noqa: ARG002
        """Return the fault until it has happened."""
        return None if any(line.what is What.FAULT for line in lines) else self._fault


class Full(Scenario):
    """The disk is full at every write, a few times each; on a long run at some writes, evenly spread."""

    lives = 4
    _MOST = 40

    def __init__(self, points: Sequence[str]) -> None:
        super().__init__(f"{FaultKind.FULL} {FaultMoment.BEFORE}")
        every = -(-len(points) // self._MOST)
        self._points, self._left_out = points, set(points) - set(points[:: every or 1])
        self._is_over = False

    @property
    def shortened(self) -> str:
        """How many of the writes were used, if some were skipped."""
        known = len(self._points)
        return f"{self.name}: at {known - len(self._left_out)} of {known} points" if self._left_out else ""

    def fault(self, lines: list[LedgerLine], left_seconds: float = inf) -> InjectedFault | None:  # noqa: ARG002
        """Return the fault once: no process dies of it."""
        if self._is_over:
            return None
        self._is_over = True
        skipped = tuple(sorted(self._left_out))
        return InjectedFault(
            kind=FaultKind.FULL, moment=FaultMoment.BEFORE, passed=skipped, seconds=left_seconds
        )


class Nested(Scenario):
    """Killed after a step, then several times while it recovers from that."""

    _CYCLE = (
        (FaultMoment.END, ""),
        (FaultMoment.AFTER, "claim_runs"),
        (FaultMoment.AFTER, "load_journal"),
        (FaultMoment.BEGIN, ""),
    )

    def __init__(self, most: int) -> None:
        super().__init__("killed during recovery, four times in a row")
        self._most = self.lives = most

    def fault(self, lines: list[LedgerLine], left_seconds: float = inf) -> InjectedFault | None:  # noqa: ARG002
        """Return the next kill of the cycle; allow progress if a whole cycle made none."""
        faults = [line for line in lines if line.what is What.FAULT]
        if len(faults) >= self._most:
            return None
        made = [line for line in faults if line.target != FaultMoment.PROGRESS.name]
        is_first = len(made) % len(self._CYCLE) == 0
        if is_first and deaths_without_progress(lines) > STUBBORN:
            return InjectedFault(kind=FaultKind.KILL, moment=FaultMoment.PROGRESS)
        moment, only = self._CYCLE[len(made) % len(self._CYCLE)]
        if only or not is_first:
            return InjectedFault(kind=FaultKind.KILL, moment=moment, only=only)
        passed = {line.step for line in made if line.target == moment.name}
        return InjectedFault(kind=FaultKind.KILL, moment=moment, passed=tuple(sorted(passed)))


class Dice(Scenario):
    """Killed from outside at random times; about every third time early, while it is starting."""

    def __init__(self, kills: int, span_seconds: float, random: Random) -> None:
        super().__init__("killed at random moments")
        self._kills, self._span_seconds, self._random = kills, span_seconds, random
        self._before = self._here = self._plays = 0
        self._is_spared = False
        self.lives = kills

    @property
    def wants_more(self) -> bool:
        """Whether kills are left: a run may end before the drawn time."""
        return self._before + self._here < self._kills and self._plays < self._kills

    @property
    def shortened(self) -> str:
        """How many kills were made, if there was no time for all."""
        made = self._before + self._here
        return f"{self.name}: {made} of {self._kills} kills" if self.wants_more else ""

    def fault(self, lines: list[LedgerLine], left_seconds: float = inf) -> InjectedFault | None:  # noqa: ARG002
        """Return a kill after the next progress if there was none for long; otherwise nothing."""
        if not lines:
            self._before, self._here, self._plays = self._before + self._here, 0, self._plays + 1
        self._here = sum(line.what is What.FAULT and line.target == "TIME" for line in lines)
        self._is_spared = deaths_without_progress(lines) >= STUBBORN
        return InjectedFault(kind=FaultKind.KILL, moment=FaultMoment.PROGRESS) if self._is_spared else None

    def kill_after_seconds(self) -> float | None:
        """Return the time of the next kill, drawn at random."""
        if self._is_spared or self._before + self._here >= self._kills:
            return None
        span = self._span_seconds if self._random.random() < 2 / 3 else self._span_seconds / 4
        return self._random.uniform(0.0, span)


def deaths_without_progress(lines: list[LedgerLine]) -> int:
    """Count the faults since a step was last recorded."""
    deaths = 0
    for line in reversed(lines):
        if line.is_progress:
            break
        deaths += line.what is What.FAULT
    return deaths
