"""What is done to a fleet: kills spread over all windows, and zombies that wake up past their lease."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

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
    woken: set[int] = set()
    drive.start_supervisor()
    drive.start_supervisor()
    drive.wait_until(drive.workers, "workers")
    while len(woken) < count:
        for stopped in _stop_in(drive, drive.random.sample(STILL, 3), woken):
            if _wake(drive, stopped):
                hit[stopped.step] += 1
                woken.add(stopped.pid)
        tick(min(count, len(woken)))
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


def _stop_in(drive: Drive, windows: list[str], woken: set[int]) -> list[Entry]:
    """Have workers stand still; returns those that do, and have not been woken before."""
    for window in windows:
        drive.arm(f"stop {window}")

    def is_over() -> bool:
        drive.feed()
        return not any(drive.is_armed(f"stop {window}") for window in windows)

    drive.wait_until(is_over, "a window", seconds=_REACH_SECONDS, must=False)
    taken = sum(not drive.disarm(f"stop {window}") for window in windows)

    def still() -> list[Entry]:
        drive.news()
        told = [one for one in drive.entries if one.fact is Fact.STOPS and one.pid not in woken]
        return [one for one in told if _state(one.pid) == "T"]

    # Who has taken a window may have to wait for another thread of his; then it is for the next round.
    drive.wait_until(lambda: len(still()) >= taken, "standing still", seconds=_REACH_SECONDS, must=False)
    return still()


def _has_ended(drive: Drive, pid: int) -> bool:
    if _state(pid) == "T":  # another of its threads has taken a window too
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return pid not in drive.workers()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _wake(drive: Drive, stopped: Entry) -> bool:
    """Wake a worker up when its lease has run out; False when it did not, or it held up all others."""

    def is_lost() -> bool:
        return not any(session.pid == stopped.pid for session in drive.store.list_sessions())

    is_past = drive.wait_until(is_lost, "the lease to run out", seconds=_REACH_SECONDS, must=False)
    if is_past:
        drive.ledger.write(Fact.WAKES, step=stopped.step, pid=stopped.pid)
    with suppress(ProcessLookupError):
        os.kill(stopped.pid, signal.SIGCONT)
    if is_past:
        drive.wait_until(partial(_has_ended, drive, stopped.pid), "a zombie to end")
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
