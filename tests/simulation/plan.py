"""A plan: which faults strike at which operation. Drawn from a seed, or one that failed, cut down."""

from __future__ import annotations

from enum import StrEnum
from random import Random

from msgspec import Struct


class Strike(StrEnum):
    """What a fault does to the process whose operation it strikes."""

    KILL_BEFORE = "killed before the call"
    KILL_AFTER = "killed after the call"
    LOST_REPLY = "reply lost after the commit"
    UNAVAILABLE = "store unavailable"
    SLOW = "call delayed"
    LATE = "reply delayed"
    PARTITION = "cut off from the store"
    PAUSE = "stopped for a while"
    CLOCK = "wall clock set"
    TERM = "told to stop"


SITES = (
    "",
    "commit",
    "claim_runs",
    "renew_session",
    "load_journals",
    "read_news",
    "append_log",
    "read_session",
    "claimed",
    "takeover",
    "begin",
    "effect",
    "done",
    "probe",
)
"""Where a fault strikes: an operation of the store or of the world; empty: any of them.

"claimed" is when a claim has given runs, and "takeover" when their worker had left some of them.
"""

_WEIGHTS = {
    Strike.KILL_BEFORE: 5,
    Strike.KILL_AFTER: 5,
    Strike.LOST_REPLY: 2,
    Strike.UNAVAILABLE: 3,
    Strike.SLOW: 3,
    Strike.LATE: 3,
    Strike.PARTITION: 3,
    Strike.PAUSE: 3,
    Strike.CLOCK: 1,
    Strike.TERM: 1,
}
_LONGEST_SECONDS = 8.0
"""How long anything lasts: less than the time limit of bodies that must not be repeated, see `agents`."""
_ZOMBIE_SECONDS = 4.0
"""Longer than a lease: who stands still that long wakes as nobody's owner."""


class Fault(Struct, frozen=True):
    """A fault: it strikes the first operation `on` that site, from operation number `at` on."""

    strike: Strike
    at: int
    on: str = ""
    seconds: float = 0.0


Plan = tuple[Fault, ...]


def plan_of(seed: int, *, operations: int = 700) -> Plan:
    """Draw a plan: single faults, and now and then a zombie and a successor who stumbles too."""
    rng = Random(f"plan {seed}")
    faults = [_single(rng, operations) for _ in range(rng.randint(3, 11))]
    for _ in range(rng.choice((0, 0, 1, 2))):
        faults += _duel(rng, operations)
    return tuple(sorted(faults, key=lambda fault: fault.at))


def _single(rng: Random, operations: int) -> Fault:
    (strike,) = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
    seconds = rng.choice((rng.uniform(0.001, 0.2), rng.uniform(0.2, _LONGEST_SECONDS)))
    return Fault(strike, rng.randrange(operations), rng.choice(SITES), round(seconds, 3))


def _duel(rng: Random, operations: int) -> list[Fault]:
    """One stands still until another owns its runs, who does so too before it has begun."""
    at, sites = rng.randrange(operations), ("commit", "commit", "claimed", "begin", "effect", "done")
    site = rng.choice(sites)
    strike = rng.choice((Strike.PAUSE, Strike.PAUSE, Strike.PARTITION))
    first = Fault(strike, at, site, round(rng.uniform(_ZOMBIE_SECONDS, _LONGEST_SECONDS), 3))
    second = rng.choice((Strike.PAUSE, Strike.PAUSE, Strike.KILL_AFTER))
    return [first, Fault(second, at, "takeover", round(rng.uniform(0.5, 2.5), 3))]
