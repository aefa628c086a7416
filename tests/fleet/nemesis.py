"""What is done to a fleet: kills spread over all windows, and zombies that wake up past their lease."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from msgspec import Struct

from tests.fleet.driver import Drive
from tests.fleet.judge import judge
from tests.fleet.ledger import Entry, Fact
from tests.fleet.windows import DEADLY, STILL

_REACH_SECONDS = 4.0
Tick = Callable[[int], None]


class Report(Struct, frozen=True, kw_only=True):
    """What was done, where, and what was wrong."""

    done: int
    windows: dict[str, int]
    runs: int
    violations: list[str]


def kills(drive: Drive, count: int, tick: Tick = lambda _: None) -> Report:
    """Kill workers in every window, at any moment, and their supervisors; several at once, so that
    recoveries are killed too.
    """
    hit: Counter[str] = Counter()
    supervisor = drive.start_supervisor()
    drive.wait_until(drive.workers, "workers")
    while hit.total() < count:
        drive.feed()
        what = drive.random.random()
        if what < 0.12:
            time.sleep(drive.random.uniform(0, 0.3))  # anywhere: also while it buries, or starts another
            drive.kill_supervisor(supervisor)
            supervisor = drive.start_supervisor()
            hit["supervisor"] += 1
        elif what < 0.3:
            time.sleep(drive.random.uniform(0, 0.1))
            hit["at any moment"] += drive.kill_worker()
        else:
            rarest = sorted(DEADLY, key=lambda window: (hit[window], drive.random.random()))
            _kill_in(drive, rarest[: drive.random.choice((1, 2, 3))], hit)
        tick(min(count, hit.total()))
    return _end(drive, hit)


def _kill_in(drive: Drive, windows: list[str], hit: Counter[str]) -> None:
    for window in windows:
        drive.arm(f"die {window}")

    def is_over() -> bool:
        drive.feed()
        return not any(drive.is_armed(f"die {window}") for window in windows)

    drive.wait_until(is_over, "a window", seconds=_REACH_SECONDS, must=False)
    for window in windows:
        hit[window] += not drive.disarm(f"die {window}")


def zombies(drive: Drive, count: int, tick: Tick = lambda _: None) -> Report:
    """Stop workers in the windows of a step, several at once, past their lease; wake them up."""
    hit: Counter[str] = Counter()
    woken = 0
    drive.start_supervisor()
    drive.start_supervisor()
    drive.wait_until(drive.workers, "workers")
    while woken < count:
        windows = drive.random.sample(STILL, 2)
        for stopped in _stop_in(drive, windows):
            if _wake(drive, stopped):
                hit[stopped.step] += 1
                woken += 1
        tick(min(count, woken))
    return _end(drive, hit)


def rolls(drive: Drive, count: int, tick: Tick = lambda _: None) -> Report:
    """Restart every worker with new code, one after the other, again and again, under load."""
    supervisor = drive.start_supervisor()
    drive.wait_until(drive.workers, "workers")
    for number in range(1, count + 1):
        before = set(drive.workers())
        supervisor.send_signal(signal.SIGHUP)

        def is_over(number: int = number) -> bool:
            drive.feed()
            return drive.log_count("all workers have the new code") >= number

        drive.wait_until(is_over, "a rolling restart")
        drive.wait_until(partial(_all_gone, drive, before), "the old workers to end")
        tick(number)
    return _end(drive, Counter({"rolling restart": count}))


def _all_gone(drive: Drive, before: set[int]) -> bool:
    return not before & set(drive.workers())


def _stop_in(drive: Drive, windows: list[str]) -> list[Entry]:
    drive.news()
    for window in windows:
        drive.arm(f"stop {window}")

    def is_over() -> bool:
        drive.feed()
        return not any(drive.is_armed(f"stop {window}") for window in windows)

    drive.wait_until(is_over, "a window", seconds=_REACH_SECONDS, must=False)
    taken = [window for window in windows if not drive.disarm(f"stop {window}")]
    stopped: list[Entry] = []

    def is_told() -> bool:
        stopped.extend(one for one in drive.news() if one.fact is Fact.STOPS)
        return len(stopped) >= len(taken)

    drive.wait_until(is_told, "a worker to stand still")
    return stopped


def _wake(drive: Drive, stopped: Entry) -> bool:
    """Wake a worker up when its lease has run out; False when it held up all others instead."""

    def is_lost() -> bool:
        return not any(session.pid == stopped.pid for session in drive.store.list_sessions())

    is_past = drive.wait_until(is_lost, "the lease to run out", seconds=_REACH_SECONDS, must=False)
    if is_past:
        drive.ledger.write(Fact.WAKES, step=stopped.step, pid=stopped.pid)
    with suppress(ProcessLookupError):
        os.kill(stopped.pid, signal.SIGCONT)
    if is_past:
        drive.wait_until(lambda: stopped.pid not in drive.workers(), "a zombie to end")
    return is_past


def _end(drive: Drive, hit: Counter[str]) -> Report:
    if not drive.supervisors:
        drive.start_supervisor()
    drive.finish()
    drive.news()
    return Report(
        done=hit.total(),
        windows=dict(hit),
        runs=len(drive.expected),
        violations=judge(drive.entries, drive.expected, drive.results()),
    )
