"""The long programme: what `make crash` runs, section by section, and what each came to."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tests.crash import births, inside, powercut, specimen, syncs, syscalls
from tests.crash.campaign import CHECK, Campaign, Tally, Told
from tests.crash.forkserver import ForkServer
from tests.crash.specimen import RUNS, SEED
from tests.crash.stores import scratch
from tests.crash.writers import PATIENCE_SECONDS, Shares, Wakes
from tests.proof.report import Result, judged

FAIR_ENOUGH = 0.6
POWER_SERIES, POWER_CUTS = 5, 60
"""So many series of so many cuts."""


class Section(Struct, frozen=True):
    """A part of the programme. `alone`: it measures time, so nothing else may run beside it."""

    name: str
    run: Callable[[ForkServer, int, Told], Result]
    alone: bool = False


def perform(section: Section, seed: int, told: Told) -> Result:
    """Run a section on a fork server of its own; whatever it raises is a violation."""
    began = time.monotonic()
    with ForkServer() as server:
        try:
            result = section.run(server, seed, told)
        except Exception as error:
            result = Result(
                section.name, "violated", "it did not come to its end", violations=[repr(error)[-3000:]]
            )
    result.name, result.seconds = section.name, round(time.monotonic() - began, 1)
    return result


def _not_run(reason: str) -> Result:
    return Result("", "not run", reason)


def _of_tally(tally: Tally, what: str) -> Result:
    numbers = (
        f"{tally.kills} {what}, {tally.acknowledged} acknowledged, {tally.kills_per_second:.1f} kills/s,"
        f" {len(tally.violations)} violations"
    )
    return judged("", numbers, tally.violations, kills=tally.kills, windows=tally.windows)


def every_call(store: str = "sqlite") -> Callable[[ForkServer, int, Told], Result]:
    """Return a section of kills before and after every call of the store."""

    def run(server: ForkServer, seed: int, told: Told) -> Result:
        tally = Campaign(server, seed, runs=3, store=store).at_every_call(told)
        return _of_tally(tally, f"of {tally.points} kill points")

    return run


def at_random(
    kills: int, mode: str, *, runs: int = 2, in_memory: bool = True, store: str = "sqlite"
) -> Callable[[ForkServer, int, Told], Result]:
    """Return a section of random kills."""

    def run(server: ForkServer, seed: int, told: Told) -> Result:
        campaign = Campaign(server, seed, runs=runs, mode=mode, in_memory=in_memory, store=store)
        tally = campaign.at_random(kills, told)
        return _of_tally(tally, f"kills, {tally.cycles} recoveries")

    return run


def among_tools(rounds: int) -> Callable[[ForkServer, int, Told], Result]:
    """Return a section of random kills with stock tools between them and beside them."""

    def run(server: ForkServer, seed: int, told: Told) -> Result:
        tally = Campaign(server, seed).among_tools(rounds, told)
        return _of_tally(tally, f"rounds of kill, stock tool, resume; {tally.cycles} stores")

    return run


def power(server: ForkServer, seed: int, told: Told) -> Result:
    """Cut the power."""
    reason = powercut.reason_not_to()
    if reason:
        return _not_run(reason)
    found = powercut.Cuts()
    for done in range(POWER_SERIES):
        with scratch() as home:
            death = server.run(
                "tests.crash.powercut:series",
                home=str(home),
                seed=seed + done,
                cuts=POWER_CUTS,
                deadline_seconds=240,
            )
            found += msgspec.convert(death.result(), powercut.Cuts)
        told(done + 1, POWER_SERIES)
    if found.control_lost:
        return _not_run(f"the plain write+fsync control lost {found.control_lost}: this disk lies")
    numbers = (
        f"{found.cuts} power cuts, {found.acknowledged} acknowledged, {found.lost} lost;"
        f" control {found.control_acknowledged} synced, {found.control_lost} lost"
    )
    wanted = POWER_SERIES * POWER_CUTS
    short = [f"{found.cuts} power cuts were made of {wanted}"] if found.cuts < wanted else []
    return judged("", numbers, found.violations + short)


def damage(server: ForkServer, seed: int, told: Told) -> Result:
    """Flip bits and cut files short."""
    kinds = [("torn", "runs.db"), ("torn", "runs.db-wal"), ("torn", "runs.db-anchor"), ("closed", "runs.db")]
    damages, errors, harmless, violations = 0, 0, 0, []
    with scratch() as home:
        specimens = specimen.prepare(server, home)
        for done, (kind, file) in enumerate(kinds, 1):
            for how in ("flip", "cut", "index", "rows") if kind == "closed" else ("flip", "cut"):
                found = sweep(server, specimens[kind], home, file, how, count=300)
                damages += found["damages"]
                errors += found["refused_at_open"] + found["found_at_read"]
                harmless += found["harmless"]
                violations += found["violations"]
            told(done, len(kinds))
    return judged(
        "", f"{damages} damages: {errors} found, {harmless} harmless, {len(violations)} wrong", violations
    )


def sweep(
    server: ForkServer, source: Path, home: Path, file: str, how: str, *, count: int = 150, mutant: str = ""
) -> dict[str, Any]:
    """Damage one file of a specimen many times."""
    death = server.run(
        "tests.crash.damage:sweep",
        source=str(source),
        home=str(home),
        seed=SEED,
        runs=RUNS,
        file=file,
        count=count,
        how=how,
        mutant=mutant,
    )
    return dict(death.result())


def born(server: ForkServer, seed: int, told: Told) -> Result:
    """Kill at every system call while a store is made."""
    return _traced(lambda: births.kill_creation(server, told=told), "kills while a store is made")


def migrated(server: ForkServer, seed: int, told: Told) -> Result:
    """Kill at every system call while a store is migrated."""
    return _traced(lambda: births.kill_migration(server, told=told), "kills while a store is migrated")


def restored(server: ForkServer, seed: int, told: Told) -> Result:
    """Kill at system calls of a backup and a restore."""
    return _traced(
        lambda: births.kill_restore(server, every=5, told=told),
        "kills while a store is backed up and restored",
    )


def inside_commits(server: ForkServer, seed: int, told: Told) -> Result:
    """Kill at every system call of a writer's commits."""
    return _traced(lambda: inside.kill_commits(server, told=told), "kills inside commits")


def failed_syncs(server: ForkServer, seed: int, told: Told) -> Result:
    """Let every sync fail once."""
    result = _traced(lambda: syncs.fail_each(server), "failed syncs")
    result.kills = 0
    return result


def _traced(run: Callable[[], tuple[int, list[str]]], what: str) -> Result:
    reason = syscalls.reason_not_to()
    if reason:
        return _not_run(reason)
    times, violations = run()
    return judged("", f"{times} {what}, {len(violations)} violations", violations, kills=times)


def tasks(
    *wanted: tuple[str, dict[str, Any]], root: bool = False, store: str = "sqlite"
) -> Callable[[ForkServer, int, Told], Result]:
    """Return a section of tasks that answer with their violations."""

    def run(server: ForkServer, seed: int, told: Told) -> Result:
        if root and (reason := powercut.reason_not_to()):
            return _not_run(reason)
        violations: list[str] = []
        for done, (task, args) in enumerate(wanted, 1):
            with scratch(store) as home:
                answer = server.run(f"tests.crash.{task}", home=str(home), **args).result()
                violations += answer if answer is not None else server.run(CHECK, home=str(home)).result()
            told(done, len(wanted))
        return judged("", f"{len(wanted)} scenes, {len(violations)} violations", violations)

    return run


def shares(server: ForkServer, seed: int, told: Told) -> Result:
    """Let four writers compete."""
    with scratch(in_memory=False) as home:
        death = server.run("tests.crash.writers:compete", home=str(home), seconds=8)
        found = msgspec.convert(death.result(), Shares)
    told(1, 1)
    if found.smallest < FAIR_ENOUGH:
        found.violations.append(f"the smallest share is {found.smallest:.2f} of a fair one: {found.commits}")
    return judged(
        "", f"4 writers, {sum(found.commits)} commits, smallest share {found.smallest:.2f}", found.violations
    )


def wakes(rounds: int, store: str = "sqlite") -> Callable[[ForkServer, int, Told], Result]:
    """Return a section that waits for work, thousands of times."""

    def run(server: ForkServer, seed: int, told: Told) -> Result:
        with scratch(store) as home:
            death = server.run(
                "tests.crash.writers:wake",
                home=str(home),
                rounds=rounds,
                deadline_seconds=1.1 * PATIENCE_SECONDS,
            )
            found = msgspec.convert(death.result(), Wakes)
        told(1, 1)
        lost = [f"{found.timeouts} waits ended by their timeout"] if found.timeouts else []
        numbers = f"{found.rounds} wake-ups, {found.timeouts} lost, slowest {found.slowest_ms:.0f} ms"
        return judged("", numbers, lost)

    return run
