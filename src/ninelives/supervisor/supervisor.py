"""The supervisor's loop: keeps a number of workers alive, whatever happens to them or to itself.

Invariants:
- A worker's session is declared dead only when all that the worker had started is gone too.
- What ends without having been told to is a death, whatever its exit code.
- Being told to stop kills the workers and ends their sessions as stopped: no life lost, no lease waited for.
If we die here: the workers notice (their link ends), kill what they have started and end; the next supervisor
sweeps what they could not, and takes their runs over.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from ninelives.core.clock import Clock
from ninelives.core.errors import SchemaMismatch, StoreBroken, StoreUnavailable
from ninelives.store import Store
from ninelives.supervisor import descendants
from ninelives.supervisor.ancestry import Kin
from ninelives.supervisor.evidence import is_stop
from ninelives.supervisor.process import WorkerProcess
from ninelives.supervisor.protocol import EXIT_AWAY, EXIT_STORE, EXIT_USAGE, WorkerOrder
from ninelives.supervisor.slot import Slot
from ninelives.supervisor.supervisor_session import SupervisorSession

STACK_MS = 1_000
_LATE_MS = 2_000
_SWEEP_MS = 10
_LONGEST_WAIT_MS = 1_000
_STOP_MS = 10_000

Tell = Callable[[str], None]
Hear = Callable[[int, str], None]


class Supervisor:
    """Workers in their slots, and those that have died and are not buried yet."""

    def __init__(self, order: WorkerOrder, store: Store, clock: Clock, *, tell: Tell, hear: Hear) -> None:
        """`tell` gets what happens, in words; `hear` what a worker writes, with its slot's number."""
        self._order, self._clock = order, clock
        self._tell, self._hear = tell, hear
        self._mark = descendants.name_keeper(os.getpid(), store.url)
        self._identity = store.identity
        self._kin = Kin()
        self._selector = selectors.DefaultSelector()
        self._keeper = SupervisorSession(store, clock, order.lease_seconds, tell, self._selector)
        self._count = 0
        longest_ms = int(order.backoff_seconds * 1000)
        self.slots = [Slot(number + 1, longest_ms) for number in range(order.processes)]
        self._dead: list[tuple[Slot, WorkerProcess]] = []
        self._signals: list[int] = []
        self._rolling: list[Slot] = []
        self._has_worked = False
        self._patient_until_ms = clock.boot_ms() + int(order.patience_seconds * 1000)
        self._exit_code: int | None = None
        self._terminal = os.isatty(0)

    def run(self) -> int:
        """Keep the workers until we are told to stop; returns the exit code."""
        descendants.become_subreaper()
        self._listen_to_signals()
        self._begin()
        while self._exit_code is None:
            self._restart()
            self._wait()
            self._look_at_kin()
            self._keep()
            self._reap()
            self._bury()
            self._watch()
            self._roll()
            self._obey()
        self._stop()
        return self._exit_code

    def _keep(self) -> None:
        try:
            self._keeper.renew()
            self._keeper.watch()
        except (StoreBroken, SchemaMismatch) as error:
            # The next worker would meet the same: whoever knows what happened to the store starts us again.
            self._tell(f"{error}: stopping")
            self._exit_code = EXIT_STORE

    def _begin(self) -> None:
        """Begin our session; a server that went away since the store was opened is waited for."""
        while self._exit_code is None:
            try:
                return self._keeper.begin()
            except StoreUnavailable as error:
                if self._clock.boot_ms() > self._patient_until_ms:
                    raise
                self._tell(f"{error.what}; waiting for it")
            self._selector.select(_LONGEST_WAIT_MS / 1000)
            self._obey()
        return None

    # Events -------------------------------------------------------------------------------------

    def _listen_to_signals(self) -> None:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        self._selector.register(ours, selectors.EVENT_READ, lambda: _drain(ours))
        self._wakeup = theirs  # kept: closing it would end the wake-ups
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda found, _: self._signals.append(found))
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _wait(self) -> None:
        now_ms = self._clock.boot_ms()
        wait_ms = max(0, min(self._deadlines(now_ms)))
        events = self._selector.select(min(wait_ms, _LONGEST_WAIT_MS) / 1000)
        woken_ms = self._clock.boot_ms()
        if woken_ms - now_ms > wait_ms + _LATE_MS:
            # We ourselves stood still (SIGSTOP, a machine asleep): nobody's silence means anything.
            for child in self._living():
                child.heard_ms = max(child.heard_ms, woken_ms)
        for key, _ in events:
            key.data()

    def _deadlines(self, now_ms: int) -> list[int]:
        found = [slot.restart_at_ms - now_ms for slot in self.slots if slot.restart_at_ms is not None]
        found += [self._limit_ms(child) - now_ms for child in self._living()]
        if self._dead:
            found.append(_SWEEP_MS)
        return [*found, self._keeper.due_ms - now_ms]

    def _limit_ms(self, child: WorkerProcess) -> int:
        if child.asked_ms is not None:
            return child.asked_ms + STACK_MS
        seconds = self._order.hang_seconds if child.is_ready else self._order.start_seconds
        return child.heard_ms + int(seconds * 1000)

    def _living(self) -> list[WorkerProcess]:
        return [child for slot in self.slots for child in slot.children()]

    # Starting -----------------------------------------------------------------------------------

    def _restart(self) -> None:
        now_ms = self._clock.boot_ms()
        for slot in self.slots:
            if slot.child is None and slot.restart_at_ms is not None and slot.restart_at_ms <= now_ms:
                child = self._start(slot)
                if child is None:
                    slot.restart_at_ms = now_ms + _LONGEST_WAIT_MS
                else:
                    slot.fill(child)

    def _start(self, slot: Slot) -> WorkerProcess | None:
        self._count += 1
        order = replace(
            self._order,
            identity=self._identity,
            keeper=self._keeper.id,
            session=self._keeper.name_session(),
        )
        try:
            child = WorkerProcess(order, self._mark, self._count, self._clock.boot_ms())
        except OSError as error:
            self._tell(f"worker {slot.number} cannot be started: {error.strerror}; trying again")
            return None
        self._selector.register(child.link, selectors.EVENT_READ, lambda: self._hear_link(slot, child))
        self._selector.register(child.output, selectors.EVENT_READ, lambda: self._hear_output(slot, child))
        self._tell(f"worker {slot.number} started (pid {child.pid})")
        return child

    def _hear_link(self, slot: Slot, child: WorkerProcess) -> None:
        was_ready = child.is_ready
        if not child.hear_link(self._clock.boot_ms()):
            self._forget(child.link)
        if child.is_ready and not was_ready:
            self._has_worked = True
            self._tell(f"worker {slot.number} is ready (pid {child.pid})")

    def _hear_output(self, slot: Slot, child: WorkerProcess) -> None:
        lines = child.hear_output()
        if lines is None:
            self._forget(child.output)
            lines = child.tail.end()
        for line in lines:
            self._hear(slot.number, line)

    def _forget(self, source: Any) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(source)

    # Deaths -------------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Take note of every process that has ended: our workers', and the strays' that were handed to us."""
        while True:
            try:
                status = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if status is None:
                return
            for slot in self.slots:
                for child in slot.children():
                    if child.pid == status.si_pid:
                        child.reap(status)
                        self._died(slot, child)
            with suppress(ChildProcessError):
                os.waitpid(status.si_pid, os.WNOHANG)

    def _died(self, slot: Slot, child: WorkerProcess) -> None:
        self._forget(child.link)
        self._hear_output(slot, child)
        self._forget(child.output)
        for line in child.tail.end():
            self._hear(slot.number, line)
        evidence = child.evidence()
        is_told = child.is_told or is_stop(evidence)
        pause_ms = slot.bury(child, self._clock.boot_ms(), is_stop=is_told)
        self._dead.append((slot, child))
        if not child.is_told:
            later = f"; the next one starts in {pause_ms / 1000:g} s" if pause_ms else ""
            self._tell(f"worker {slot.number} (pid {child.pid}) {evidence.note}{later}")
            slot.restarts += 1
        if slot in self._rolling and child.is_ready is False and not child.is_told:
            self._rolling.clear()
            self._tell(
                "the new code does not start: the rolling restart ends here, the others keep the old code"
            )
        ending = self._reason_to_end(evidence.exit_code) if not self._has_worked else None
        if ending is not None:
            self._exit_code = ending

    def _reason_to_end(self, code: int | None) -> int | None:
        """Return the code to end with when the next worker would end as this one did, which has said why."""
        if code == EXIT_AWAY:  # whoever serves the store may be about to come back
            return EXIT_STORE if self._clock.boot_ms() > self._patient_until_ms else None
        return code if code in (EXIT_USAGE, EXIT_STORE) else None

    def _bury(self) -> None:
        """Sweep what the dead have left, and declare dead those of whom nothing is left."""
        wards = {child.ward for child in self._living()}
        pids = {child.pid for child in self._living()} | {os.getpid()}
        for slot, child in list(self._dead):
            others = wards | {one.ward for _, one in self._dead} - {child.ward}
            left = descendants.sweep(child.ward, others, pids, self._kin.may_be_of)
            self._reap_strays(left)
            if left:
                continue  # killed; whether they are gone is seen at the next look
            # CRASH: the session is still open, its lock dropped: others find it by that, and nothing is left.
            if self._keeper.declare(child):
                self._dead.remove((slot, child))
                child.close()

    def _look_at_kin(self, *, is_urgent: bool = False) -> None:
        workers = {child.pid: child.ward for child in self._living()}
        self._kin.look(workers, self._clock.boot_ms(), is_urgent=is_urgent)

    def _reap_strays(self, pids: list[int]) -> None:
        for pid in pids:
            with suppress(ChildProcessError):  # not handed to us yet, or another's
                os.waitpid(pid, os.WNOHANG)

    # Watching -----------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Ask who has been silent for too long for its stacks, and kill it a second later."""
        now_ms = self._clock.boot_ms()
        for slot in self.slots:
            for child in slot.children():
                if child.status is not None or now_ms < self._limit_ms(child):
                    continue
                if child.asked_ms is None:
                    what = "its event loop is blocked" if child.is_ready else "it does not get ready"
                    silent = (now_ms - child.heard_ms) / 1000
                    self._tell(f"worker {slot.number} (pid {child.pid}): {what}, {silent:.0f} s; its stacks:")
                    child.ask_for_stacks(now_ms)
                elif child.hung_seconds is None:
                    child.hung_seconds = (now_ms - child.heard_ms) / 1000
                    self._look_at_kin(is_urgent=True)
                    child.kill()

    # Being told ---------------------------------------------------------------------------------

    def _obey(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if number != signal.SIGHUP:
                self._tell(f"{signal.Signals(number).name}: stopping")
                self._exit_code = 0
            elif self._terminal and not os.isatty(0):
                self._exit_code = 0  # the terminal was closed
            else:
                self._tell("SIGHUP: restarting the workers with new code, one after the other")
                self._rolling = list(self.slots)

    def _roll(self) -> None:
        """Replace one worker after the other: the old one is ended when its successor is ready."""
        while self._rolling:
            slot = self._rolling[0]
            if slot.successor is None:
                slot.successor = self._start(slot)
                return
            if not slot.successor.is_ready:
                return
            self._look_at_kin(is_urgent=True)
            slot.promote()
            self._rolling.pop(0)
            if not self._rolling:
                self._tell("all workers have the new code")

    def _stop(self) -> None:
        self._look_at_kin(is_urgent=True)
        for slot in self.slots:
            slot.clear()
        deadline_ms = self._clock.boot_ms() + _STOP_MS
        while (self._dead or self._living()) and self._clock.boot_ms() < deadline_ms:
            self._reap()
            self._bury()
            if self._dead or self._living():
                self._selector.select(_SWEEP_MS / 1000)
        self._keeper.end()


def _drain(source: socket.socket) -> None:
    with suppress(BlockingIOError):
        while source.recv(4096):
            pass
