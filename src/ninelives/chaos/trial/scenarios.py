"""Scripts: what befalls a run, life by life. Each decides by what has happened in the trial so far.

No script kills a run more than a few times where it makes no progress: nine such deaths would quarantine it,
which is what is promised, and shows nothing about the user's code. Where there is not time for every place of
a long run, those that are left out are spread over all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from random import Random
from typing import Protocol

from ninelives.chaos.ledger import LedgerLine, What
from ninelives.chaos.protocol import LEASE_SECONDS, OUTCOMES, Deed, FaultMoment, InjectedFault

STUBBORN = 4
"""So many deaths in a row without progress, and the next life is left alone until it has made some."""
HANG_LEASE_SECONDS = 1.0
CUT_SECONDS = 0.4


class Scenario(Protocol):
    """What befalls a run."""

    name: str
    kind: str
    """What several scripts have in common that differ in the place alone."""
    lease_seconds: float
    lives: int
    """About how many processes it takes."""

    @property
    def wants_more(self) -> bool:
        """Tell whether it is to be played once more."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of fault that had their turn."""

    @property
    def shortened(self) -> str:
        """Say what of it there was no time for; empty when nothing was left out."""

    def fault(self, lines: list[LedgerLine], left_seconds: float = inf) -> InjectedFault | None:
        """Return what befalls the next life; None: nothing any more."""

    def kill_after_seconds(self) -> float | None:
        """Return when the next life is killed from outside, counted from its start."""


class Calm:
    """Nothing befalls it."""

    lease_seconds = LEASE_SECONDS
    lives = 1

    def __init__(self, name: str, kind: str = "") -> None:
        self.name, self.kind = name, kind or name

    @property
    def wants_more(self) -> bool:
        """Once is enough."""
        return False

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the one kind that it is of."""
        return (self.kind,)

    @property
    def shortened(self) -> str:
        """Nothing is left out."""
        return ""

    def fault(self, lines: list[LedgerLine], left_seconds: float = inf) -> InjectedFault | None:  # noqa: ARG002
        """Return nothing."""
        return None

    def kill_after_seconds(self) -> float | None:
        """Return nothing."""
        return None


class Walk(Calm):
    """The same fault at every moment of a kind, one after the other: each life comes one further.

    `places` are the moments that are known of, in order: of too many for the time, only some are taken.
    """

    def __init__(
        self, deed: Deed, moment: FaultMoment, most: int, *, line: str = "", places: Sequence[str] = ()
    ) -> None:
        super().__init__(f"{deed} {moment}" if not line else f"{deed} at {line}")
        self.deed, self.moment = deed, moment
        self._most, self._line, self._places = most, line, places
        self._left_out: set[str] = set()
        self.lives = min(most, len(places) or most) + 1

    @property
    def shortened(self) -> str:
        """Say of how many places it has left some out."""
        skipped, known = len(self._left_out), len(self._places)
        return f"{self.name}: at {known - skipped} of {known} places" if skipped else ""

    def made(self, lines: list[LedgerLine]) -> list[LedgerLine]:
        """Return the faults that are of this kind."""
        wanted = self.deed.name, self.moment.name
        return [line for line in lines if line.what is What.FAULT and (line.kind, line.target) == wanted]

    def fault(self, lines: list[LedgerLine], left_seconds: float = inf) -> InjectedFault | None:
        """Return the fault at the next moment that was not passed."""
        made = self.made(lines)
        if sum(line.what is What.FAULT for line in lines) >= self._most:
            return None
        if deaths_without_progress(lines) >= STUBBORN:
            return InjectedFault(deed=Deed.KILL, moment=FaultMoment.PROGRESS)
        if self._line:
            return InjectedFault(deed=self.deed, moment=self.moment, line=self._line)
        passed = {name for line in made for name in line.data.get("passed", [line.step])}
        ahead = self._ahead(lines, left_seconds)
        self._left_out |= {name for name in self._places[:ahead] if name not in passed}
        return InjectedFault(
            deed=self.deed, moment=self.moment, passed=tuple(sorted(passed | self._left_out))
        )

    def _ahead(self, lines: list[LedgerLine], left_seconds: float) -> int:
        """Return how many of the places the next fault should be past, to come to the end in time."""
        done = sum(line.what is What.FAULT for line in lines)
        spent = lines[-1].at - lines[0].at if done else 0.0
        if not spent or left_seconds == inf:
            return 0
        whole = min(done + left_seconds * done / spent, self._most)
        return 0 if whole >= len(self._places) else int(len(self._places) * done / whole)


class Turns(Calm):
    """Several walks in one run, by turns: where one run takes so long that there is no time for one each."""

    def __init__(self, walks: Sequence[Walk]) -> None:
        super().__init__("killed or told to stop, each time at another moment")
        self._walks, self._lines = walks, list[LedgerLine]()
        self.lives = max(walk.lives for walk in walks)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return those whose fault was made."""
        return tuple(walk.kind for walk in self._walks if walk.made(self._lines))

    @property
    def shortened(self) -> str:
        """Say that each kind came to some places only."""
        return f"{', '.join(self.kinds)}: by turns in one run"

    def fault(self, lines: list[LedgerLine], left_seconds: float = inf) -> InjectedFault | None:
        """Return the fault of the walk whose turn it is."""
        self._lines = lines
        turn = sum(line.what is What.FAULT for line in lines)
        return self._walks[turn % len(self._walks)].fault(lines, left_seconds)


class Once(Calm):
    """One fault, at one moment."""

    lives = 2

    def __init__(self, kind: str, fault: InjectedFault, *, lease_seconds: float = LEASE_SECONDS) -> None:
        super().__init__(f"{kind} ({fault.only})", kind)
        self._fault, self.lease_seconds = fault, lease_seconds

    def fault(self, lines: list[LedgerLine], left_seconds: float = inf) -> InjectedFault | None:  # noqa: ARG002
        """Return the fault until it has happened."""
        return None if any(line.what is What.FAULT for line in lines) else self._fault


class Full(Calm):
    """The disk is full at every write, a few times each; of a long run, at some, spread over all of it."""

    lives = 4
    _MOST = 40

    def __init__(self, places: Sequence[str]) -> None:
        super().__init__(f"{Deed.FULL} {FaultMoment.BEFORE}")
        every = -(-len(places) // self._MOST)
        self._places, self._left_out = places, set(places) - set(places[:: every or 1])
        self._is_over = False

    @property
    def shortened(self) -> str:
        """Say of how many writes it has left some out."""
        known = len(self._places)
        return f"{self.name}: at {known - len(self._left_out)} of {known} places" if self._left_out else ""

    def fault(self, lines: list[LedgerLine], left_seconds: float = inf) -> InjectedFault | None:  # noqa: ARG002
        """Return the fault, once: nobody dies of it."""
        if self._is_over:
            return None
        self._is_over = True
        skipped = tuple(sorted(self._left_out))
        return InjectedFault(deed=Deed.FULL, moment=FaultMoment.BEFORE, passed=skipped, seconds=left_seconds)


class Nested(Calm):
    """Killed after a step, and then again and again while it recovers from that."""

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
        """Return the next of the cycle; let there be progress where a whole one has brought none."""
        faults = [line for line in lines if line.what is What.FAULT]
        if len(faults) >= self._most:
            return None
        made = [line for line in faults if line.target != FaultMoment.PROGRESS.name]
        is_first = len(made) % len(self._CYCLE) == 0
        if is_first and deaths_without_progress(lines) > STUBBORN:
            return InjectedFault(deed=Deed.KILL, moment=FaultMoment.PROGRESS)
        moment, only = self._CYCLE[len(made) % len(self._CYCLE)]
        if only or not is_first:
            return InjectedFault(deed=Deed.KILL, moment=moment, only=only)
        passed = {line.step for line in made if line.target == moment.name}
        return InjectedFault(deed=Deed.KILL, moment=moment, passed=tuple(sorted(passed)))


class Dice(Calm):
    """Killed from outside at random times; every third time while it is still coming up."""

    def __init__(self, kills: int, span_seconds: float, random: Random) -> None:
        super().__init__("killed at random moments")
        self._kills, self._span_seconds, self._random = kills, span_seconds, random
        self._before = self._here = self._plays = 0
        self._is_spared = False
        self.lives = kills

    @property
    def wants_more(self) -> bool:
        """Tell whether kills are left: a run may end before its time has come."""
        return self._before + self._here < self._kills and self._plays < self._kills

    @property
    def shortened(self) -> str:
        """Say how many kills there was no time for."""
        made = self._before + self._here
        return f"{self.name}: {made} of {self._kills} kills" if self.wants_more else ""

    def fault(self, lines: list[LedgerLine], left_seconds: float = inf) -> InjectedFault | None:  # noqa: ARG002
        """Return nothing but progress, where there has been none for long."""
        if not lines:
            self._before, self._here, self._plays = self._before + self._here, 0, self._plays + 1
        self._here = sum(line.what is What.FAULT and line.target == "TIME" for line in lines)
        self._is_spared = deaths_without_progress(lines) >= STUBBORN
        return InjectedFault(deed=Deed.KILL, moment=FaultMoment.PROGRESS) if self._is_spared else None

    def kill_after_seconds(self) -> float | None:
        """Draw the time of the next kill."""
        if self._is_spared or self._before + self._here >= self._kills:
            return None
        span = self._span_seconds if self._random.random() < 2 / 3 else self._span_seconds / 4
        return self._random.uniform(0.0, span)


def deaths_without_progress(lines: list[LedgerLine]) -> int:
    """Count the faults since a step was last recorded."""
    deaths = 0
    for line in reversed(lines):
        if line.what is What.FAULT:
            deaths += 1
        elif line.what is What.STORED and any(kind in OUTCOMES for kind, _ in line.data["records"]):
            break
    return deaths
