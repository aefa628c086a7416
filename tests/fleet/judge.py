"""The judge of a fleet: believes the ledger, and the results that the store gives out. Knows no processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from tests.fleet.ledger import Entry, Fact


def judge(entries: Sequence[Entry], expected: Mapping[str, int], results: Mapping[str, object]) -> list[str]:
    """Return all that is wrong."""
    return [
        *_results(entries, expected, results),
        *_repeated(entries),
        *_paid(entries),
        *_stale(entries),
        *_begun_late(entries),
    ]


def _results(
    entries: Sequence[Entry], expected: Mapping[str, int], results: Mapping[str, object]
) -> list[str]:
    """I1, I6, I7: what was acknowledged is there, has ended, and with what it should."""
    started = [one.run for one in entries if one.fact is Fact.STARTED]
    found = [f"I1: {run} is lost" for run in started if results.get(run, "lost") == "lost"]
    for run in started:
        result = results.get(run, "lost")
        if result != "lost" and isinstance(result, str):
            found.append(f"I6: {run} is {result}")
        elif result not in ("lost", expected[run]):
            found.append(f"I7: {run} gave {result}, not {expected[run]}")
    return found


def _repeated(entries: Sequence[Entry]) -> list[str]:
    """I2: once the agent was told of an outcome, the step's body does not begin again."""
    told: set[tuple[str, str]] = set()
    found = []
    admitted = _admitted(entries)
    for number, one in enumerate(entries):
        if one.fact is Fact.TOLD:
            told.add((one.run, one.step))
        elif one.fact is Fact.BEGIN and (one.run, one.step) in told and number not in admitted:
            found.append(f"I2: step {one.step} of {one.run} began again in {one.pid}")
    return found


def _paid(entries: Sequence[Entry]) -> list[str]:
    """I3: a protected step takes effect once at most, and what may still land is not started again."""
    begun: dict[tuple[str, str], int] = {}
    landed: dict[tuple[str, str], int] = {}
    found = []
    for one in entries:
        place = (one.run, one.step)
        what = f"I3: start {one.start} of step {one.step} of {one.run}"
        if one.start and one.fact is Fact.BEGIN:
            if place in landed:
                found.append(f"{what} began although start {landed[place]} had taken effect")
            elif one.start <= begun.get(place, 0):
                found.append(f"{what} began after start {begun[place]}")
            begun[place] = max(one.start, begun.get(place, 0))
        elif one.start and one.fact is Fact.EFFECT:
            if place in landed:
                found.append(f"{what} took effect after start {landed[place]}")
            elif one.start != begun.get(place):
                found.append(f"{what} landed although it was said not to have happened")
            landed[place] = one.start
    return found


def _stale(entries: Sequence[Entry]) -> list[str]:
    """Nothing is written by an owner behind what the next one was given."""
    claims: defaultdict[str, list[Entry]] = defaultdict(list)
    for one in entries:
        if one.fact is Fact.CLAIMED:
            claims[one.run].append(one)
    return [
        f"stale write: epoch {one.epoch} of {one.run} wrote record {one.length - 1} of epoch {claim.epoch}"
        for one in entries
        if one.fact is Fact.COMMITTED
        for claim in claims[one.run]
        if claim.epoch > one.epoch and claim.length < one.length
    ]


def _begun_late(entries: Sequence[Entry]) -> list[str]:
    """No body begins in a process that was woken after its lease."""
    woken: set[int] = set()
    found = []
    admitted = _admitted(entries)
    for number, one in enumerate(entries):
        if one.fact is Fact.WAKES:
            woken.add(one.pid)
        elif one.fact is Fact.BEGIN and one.pid in woken and number not in admitted:
            found.append(f"body after the lease: step {one.step} of {one.run} in {one.pid}")
    return found


def _admitted(entries: Sequence[Entry]) -> set[int]:
    """Return the bodies that were admitted before their process stood still, and say so only after it.

    A thread may be stopped between the look at the clock and the body's first line; so the first thing that
    a thread of a woken process says may be one beginning. A second one is too late.
    """
    spoken: defaultdict[int, set[int]] = defaultdict(set)
    woken: set[int] = set()
    found: set[int] = set()
    for number, one in enumerate(entries):
        if one.fact is Fact.WAKES:
            woken.add(one.pid)
        elif one.pid in woken and one.thread not in spoken[one.pid]:
            spoken[one.pid].add(one.thread)
            if one.fact is Fact.BEGIN:
                found.add(number)
    return found
