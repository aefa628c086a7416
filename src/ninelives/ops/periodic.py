"""Do something every N seconds, in one process at a time over all machines, whichever of them dies.

The document `periodic/NAME` holds a `Schedule`: which process has the turn, until when its claim holds, when
the last turn began and when one last succeeded. All changes are compare-and-set (docs/decisions/0025).

- A turn is due when the last one that began has succeeded and began N seconds ago, or has not succeeded: one
  that was cut off is begun again as soon as its claim has lapsed, one that failed after a growing pause.
- The owner renews its claim while it works: between its parts (`Turn.renew`), or beside a call that has no
  parts (`Turn.renewed`). A process that dies stops renewing, and
  `lapse_seconds` later another one may take the turn. A process that was only slow finds that out at its
  next renewal (LeaseLost), and stops.
- Times are the store's. If its clock is set, or a process sleeps through its claim, two processes may work
  for a moment. So the work itself must do no harm when it is done twice or at once: keep its progress in
  documents too.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec
from msgspec.structs import replace

from ninelives.core.errors import LeaseLost, NineLivesError, StaleDocument, StoreBroken, StoreUnavailable
from ninelives.engine.machine import machine
from ninelives.store import DocumentStore
from ninelives.views import documents

PREFIX = "periodic/"
_RENEWALS = 3  # how many times a claim is renewed before it would lapse: a slow store must not cost it
_CHECKS = 12  # how many times within a claim a thread asks whether to renew it
_RETRY_MS, _LONGEST_RETRY_MS = 5_000, 3_600_000
_SHOWN = 500


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The body of the document. `owner` is empty when no process has the turn; 0 is never.

    `failures` counts the turns that failed since the last success, and `fault` says what the last one met.
    """

    owner: str = ""
    until_ms: int = 0
    started_ms: int = 0
    succeeded_ms: int = 0
    failures: int = 0
    fault: str = ""

    @property
    def is_done(self) -> bool:
        """Return whether the last turn that began has succeeded."""
        return not self.owner and self.succeeded_ms >= self.started_ms > 0 and not self.failures


class Turn:
    """The right to do the work now, from `Periodic.begin` until `succeed` or `fail`."""

    def __init__(
        self, store: DocumentStore, name: str, version: int, schedule: Schedule, lapse_ms: int
    ) -> None:
        self._store, self._name, self._lapse_ms = store, name, lapse_ms
        self._version, self._schedule = version, schedule

    @property
    def started_ms(self) -> int:
        """Return when this turn began."""
        return self._schedule.started_ms

    def renew(self) -> None:
        """Hold the claim for longer; cheap to call often. Raises LeaseLost when another process has it.

        If we die here: the claim is renewed or not, and lapses.
        """
        now_ms = self._store.read_clock()
        if self._schedule.until_ms - now_ms <= self._lapse_ms - self._lapse_ms // _RENEWALS:
            self._write(replace(self._schedule, until_ms=now_ms + self._lapse_ms))

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Renew the claim by a thread while the body works. Raises LeaseLost at its end if it was lost.

        If we die here: the thread dies with us, and the claim lapses.
        """
        lost: list[LeaseLost] = []
        is_over = threading.Event()

        def renew() -> None:
            while not is_over.wait(self._lapse_ms / 1000 / _CHECKS):
                try:
                    self.renew()
                except LeaseLost as error:
                    lost.append(error)
                    return
                except StoreUnavailable:
                    pass  # tried again before the claim lapses

        thread = threading.Thread(target=renew, name="ninelives-renewal", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
        if lost:
            raise lost[0]

    def succeed(self) -> None:
        """Note that the work is done, and give the turn back. Raises LeaseLost."""
        # CRASH: the work is done, and not noted: it is done again when the claim has lapsed.
        done_ms = max(self._store.read_clock(), self.started_ms)
        self._write(replace(self._schedule, owner="", until_ms=0, succeeded_ms=done_ms, failures=0, fault=""))

    def fail(self, fault: str, retry_ms: int | None = None) -> None:
        """Give the turn back without success; it is due again after a pause. Raises LeaseLost."""
        failures = self._schedule.failures + 1
        pause_ms = min(_LONGEST_RETRY_MS, _RETRY_MS * 2 ** min(failures - 1, 30))
        until_ms = self._store.read_clock() + (pause_ms if retry_ms is None else retry_ms)
        after = replace(self._schedule, owner="", until_ms=until_ms, failures=failures, fault=fault[:_SHOWN])
        self._write(after)

    def _write(self, after: Schedule) -> None:
        try:
            written = self._store.write_document(
                self._name, msgspec.json.encode(after), version=self._version
            )
        except StaleDocument as error:
            raise LeaseLost(f"{self._name}: another process has taken the turn: {error}") from error
        if written is not None:
            self._schedule, self._version = after, written.version


class Periodic:
    """One kind of work that is done every so many seconds."""

    def __init__(
        self, store: DocumentStore, name: str, every_seconds: float, *, lapse_seconds: float = 60.0
    ) -> None:
        self._store, self.name = store, f"{PREFIX}{name}"
        self._every_ms, self._lapse_ms = int(every_seconds * 1000), int(lapse_seconds * 1000)

    def read(self) -> Schedule:
        """Return what is known of the last turn."""
        return self._read()[0]

    def begin(self, *, at_once: bool = False) -> Turn | None:
        """Take the turn if it is due and no other process has it; `at_once`: even if it is not due.

        If we die here: nothing is taken, or a claim that lapses.
        """
        known, version = self._read()
        now_ms = self._store.read_clock()
        if self._due_ms(known, now_ms) > now_ms and not (at_once and not self._is_held(known, now_ms)):
            return None
        # A turn that was cut off keeps its beginning: the age of the last whole one counts from there.
        started_ms = now_ms if known.is_done or not known.started_ms else known.started_ms
        owner = f"{machine()}:{os.getpid()}:{secrets.token_hex(4)}"
        mine = replace(known, owner=owner, until_ms=now_ms + self._lapse_ms, started_ms=started_ms)
        try:
            written = self._store.write_document(self.name, msgspec.json.encode(mine), version=version)
        except StaleDocument:
            return None  # another process was quicker
        # CRASH: a claim without work; it lapses, and the next process begins.
        return Turn(self._store, self.name, written.version if written else 1, mine, self._lapse_ms)

    def wait_seconds(self) -> float:
        """Return how long to wait before asking for a turn again: until it is due, at most until a lapse."""
        now_ms = self._store.read_clock()
        due_ms = self._due_ms(self._read()[0], now_ms) - now_ms
        return min(max(due_ms, 50), self._lapse_ms) / 1000

    def repeat(self, work: Callable[[Turn], None], wait: Callable[[float], bool]) -> None:
        """Do the work whenever it is due, until `wait(seconds)` returns True.

        A failure of the work or an unavailable store is noted where possible, and it is tried again. Every
        other error ends the process, as a kill would: whatever restarts it continues.
        """
        while True:
            try:
                turn = self.begin()
                if turn is not None:
                    self._carry_out(turn, work)
                pause = self.wait_seconds()
            except (StoreUnavailable, LeaseLost):
                pause = _RETRY_MS / 1000
            if wait(pause):
                return

    def _carry_out(self, turn: Turn, work: Callable[[Turn], None]) -> None:
        try:
            work(turn)
        except (LeaseLost, StoreBroken):
            raise
        except NineLivesError as error:
            turn.fail(str(error))
        except Exception as error:
            with suppress(NineLivesError):
                turn.fail(f"{type(error).__name__}: {error}")
            raise
        except BaseException:
            with suppress(NineLivesError):
                turn.fail("the process was stopped", retry_ms=0)
            raise
        else:
            turn.succeed()

    def _is_held(self, known: Schedule, now_ms: int) -> bool:
        # A claim that ends later than any that can be made now was made before the clock was set back.
        return bool(known.owner) and now_ms < known.until_ms <= now_ms + self._lapse_ms

    def _due_ms(self, known: Schedule, now_ms: int) -> int:
        if known.started_ms > now_ms:
            return known.until_ms if self._is_held(known, now_ms) else now_ms  # the clock was set back
        if known.is_done:
            return known.started_ms + self._every_ms
        if known.owner:
            return known.until_ms if self._is_held(known, now_ms) else now_ms
        return min(known.until_ms, now_ms + _LONGEST_RETRY_MS)

    def _read(self) -> tuple[Schedule, int]:
        known, version = documents.read(self._store, self.name, Schedule)
        return known or Schedule(), version
