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

_REACH_SECONDS, _STOP_SECONDS = 4.0, 1.0
_MOST_AT_ONCE = 4
Tick = Callable[[int], None]


class Report(Struct, frozen=True, kw_only=True):
    """What was done, where, and what was wrong."""

    done: int
    windows: dict[str, int]
    runs: int
    held_up: int = 0  # stops with the store's lock in hand, which were taken back
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
    return end(drive, hit)


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
    held_up = 0
    drive.start_supervisor()
    drive.start_supervisor()
    drive.wait_until(drive.workers, "workers")
    while len(woken) < count:
        some = max(1, min(_MOST_AT_ONCE, len(drive.workers()) - 1))  # one goes on, and takes over
        stopped = _stop_in(drive, drive.random.sample(STILL, some), woken)
        for one in [one for one in stopped if drive.holds_up_others(one.pid)]:
            _go_on(one.pid)
            stopped.remove(one)
            held_up += 1
        for one in _wake(drive, stopped):
            hit[one.step] += 1
            woken.add(one.pid)
        tick(min(count, len(woken)))
    return end(drive, hit, held_up)


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
    return end(drive, Counter({"rolling restart": count}))


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
        return [one for one in {one.pid: one for one in told}.values() if _state(one.pid) == "T"]

    # Who has taken a window may have to wait for another thread of his; then it is for the next round.
    drive.wait_until(lambda: len(still()) >= taken, "standing still", seconds=_STOP_SECONDS, must=False)
    return still()


def _has_ended(drive: Drive, pid: int) -> bool:
    if _state(pid) == "T":  # another of its threads has taken a window too
        _go_on(pid)
    return pid not in drive.workers()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _wake(drive: Drive, stopped: list[Entry]) -> list[Entry]:
    """Wake workers up when all their leases have run out; returns none when they did not."""
    pids = {one.pid for one in stopped}

    def are_lost() -> bool:
        return not any(session.pid in pids for session in drive.store.list_sessions())

    are_past = drive.wait_until(are_lost, "the leases to run out", seconds=_REACH_SECONDS, must=False)
    for one in stopped:
        if are_past:
            drive.ledger.write(Fact.WAKES, step=one.step, pid=one.pid)
        _go_on(one.pid)
    if not are_past:
        return []
    for pid in pids:
        drive.wait_until(partial(_has_ended, drive, pid), "a zombie to end")
    return stopped


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def end(drive: Drive, hit: Counter[str], held_up: int = 0) -> Report:
    """Let all runs come to their ends, and judge."""
    if not drive.supervisors:
        drive.start_supervisor()
    drive.finish()
    drive.news()
    return Report(
        done=hit.total(),
        windows=dict(hit),
        runs=len(drive.expected),
        held_up=held_up,
        violations=judge(drive.entries, drive.expected, drive.results()),
    )
