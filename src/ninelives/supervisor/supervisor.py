"""The supervisor's main loop: keeps a number of workers running, whatever happens to them or to itself.

Invariants:
- A worker's session is declared dead only when all descendants of the worker are gone too.
- A worker that exits without being stopped counts as dead, whatever its exit code.
- A stop kills the workers and ends their sessions as stopped: no run loses a life, and no lease must expire.
If we die here: the workers notice (their link closes), kill their descendants and exit. The next supervisor
kills what they missed, and its workers take over their runs.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ninelives.core.clock import Clock
from ninelives.core.errors import SchemaMismatch, StoreBroken, StoreUnavailable
from ninelives.supervisor import descendants
from ninelives.supervisor.companions import Companion, Companions
from ninelives.supervisor.evidence import is_stop
from ninelives.supervisor.halted_workers import HaltedWorkers
from ninelives.supervisor.process import WorkerProcess
from ninelives.supervisor.protocol import EXIT_AWAY, EXIT_STORE, EXIT_USAGE, WorkerSettings
from ninelives.supervisor.slot import WorkerSlot
from ninelives.supervisor.supervisor_session import SupervisorSession

if TYPE_CHECKING:
    from ninelives.stores.open import AnyStore

STACK_MS = 1_000
_LATE_MS = 2_000
_SWEEP_MS = 10
_LONGEST_WAIT_MS = 1_000
_STOP_MS = 10_000

Report = Callable[[str], None]
OnOutput = Callable[[int, str], None]


class Supervisor:
    """Workers in their slots, and dead workers whose descendants are not all gone yet."""

    def __init__(
        self,
        settings: WorkerSettings,
        store: AnyStore,
        clock: Clock,
        *,
        report: Report,
        on_output: OnOutput,
        warn: Report | None = None,
        fail: Report | None = None,
        companions: Sequence[Companion] = (),
    ) -> None:
        """`report` gets a line for each event, `warn` for each trouble (default: `report`).

        `fail` gets the errors of companions (default: `warn`).
        `on_output` gets each line of a worker, with its slot's number.
        """
        self._settings, self._clock = settings, clock
        self._report, self._on_output, self._warn = report, on_output, warn or report
        self._fail = fail or self._warn
        self._mark = descendants.supervisor_mark(os.getpid(), store.url)
        self._identity = store.identity
        # Before the first worker: what runs below us now is not ours to kill.
        self._ancestry = descendants.Ancestry()
        self._selector = selectors.DefaultSelector()
        self._session = SupervisorSession(store, clock, settings.lease_seconds, self._warn, self._selector)
        self._companions = Companions(companions, settings.url, self._mark, clock, self._selector, self._note)
        self._halted = HaltedWorkers(store, clock.boot_ms())
        self._count = 0
        longest_ms = int(settings.backoff_seconds * 1000)
        self.slots = [WorkerSlot(number + 1, longest_ms) for number in range(settings.processes)]
        self._dead: list[tuple[WorkerSlot, WorkerProcess]] = []
        self._signals: list[int] = []
        self._rolling: list[WorkerSlot] = []
        self._has_worked = False
        self._patient_until_ms = clock.boot_ms() + int(settings.patience_seconds * 1000)
        self._exit_code: int | None = None
        self._terminal = os.isatty(0)

    def run(self) -> int:
        """Keep the workers running until a stop signal; return the exit code."""
        # Before the first worker: orphans that it leaves would otherwise go to init, out of our sight.
        descendants.become_subreaper()
        self._listen_to_signals()
        self._begin()
        while self._exit_code is None:
            self._restart()
            self._companions.restart()
            self._wait()
            self._scan_descendants()
            self._keep_session()
            self._reap()
            self._declare_dead()
            self._watch()
            self._end_halted()
            self._roll()
            self._handle_signals()
        self._stop()
        return self._exit_code

    def _note(self, line: str, level: int) -> None:
        by_level = {logging.INFO: self._report, logging.WARNING: self._warn}
        by_level.get(level, self._fail)(line)

    def _keep_session(self) -> None:
        try:
            self._session.renew()
            self._session.watch()
        except (StoreBroken, SchemaMismatch) as error:
            # The next worker would fail in the same way: an operator must repair the store and restart us.
            self._warn(f"{error}: stopping")
            self._exit_code = EXIT_STORE

    def _begin(self) -> None:
        """Start our session; wait for a server that became unreachable since the store was opened."""
        while self._exit_code is None:
            try:
                return self._session.begin()
            except StoreUnavailable as error:
                if self._clock.boot_ms() > self._patient_until_ms:
                    raise
                self._warn(f"{error.what}; waiting for it")
            self._selector.select(_LONGEST_WAIT_MS / 1000)
            self._handle_signals()
        return None

    # Events -------------------------------------------------------------------------------------

    def _listen_to_signals(self) -> None:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        self._selector.register(ours, selectors.EVENT_READ, lambda: _drain(ours))
        self._wakeup = theirs  # keep a reference: the garbage collector would close it
        # Python retries a system call that a signal interrupts:
        # without this, select would sleep through SIGTERM.
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda found, _: self._signals.append(found))
        # A handler that does nothing: without one, the kernel would not wake us for a death.
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _wait(self) -> None:
        now_ms = self._clock.boot_ms()
        wait_ms = max(0, min(self._deadlines(now_ms)))
        events = self._selector.select(min(wait_ms, _LONGEST_WAIT_MS) / 1000)
        woken_ms = self._clock.boot_ms()
        if woken_ms - now_ms > wait_ms + _LATE_MS:
            # We ourselves were suspended (SIGSTOP, a sleeping machine): missing beats mean nothing.
            for child in self._living():
                child.beat_ms = max(child.beat_ms, woken_ms)
        for key, _ in events:
            key.data()

    def _deadlines(self, now_ms: int) -> list[int]:
        found = [slot.restart_at_ms - now_ms for slot in self.slots if slot.restart_at_ms is not None]
        found += [self._limit_ms(child) - now_ms for child in self._living()]
        found += self._companions.deadlines(now_ms)
        if self._dead:
            found.append(_SWEEP_MS)
        return [*found, self._session.due_ms - now_ms]

    def _limit_ms(self, child: WorkerProcess) -> int:
        if child.stacks_requested_ms is not None:
            return child.stacks_requested_ms + STACK_MS
        seconds = self._settings.hang_seconds if child.is_ready else self._settings.start_seconds
        return child.beat_ms + int(seconds * 1000)

    def _living(self) -> list[WorkerProcess]:
        return [child for slot in self.slots for child in slot.children()]

    # Starting -----------------------------------------------------------------------------------

    def _restart(self) -> None:
        now_ms = self._clock.boot_ms()
        for slot in self.slots:
            if slot.child is None and slot.restart_at_ms is not None and slot.restart_at_ms <= now_ms:
                child = self._start(slot)
                if child is None:
                    # The machine has no room for a process: trying at once would only load it more.
                    slot.restart_at_ms = now_ms + _LONGEST_WAIT_MS
                else:
                    slot.fill(child)

    def _start(self, slot: WorkerSlot) -> WorkerProcess | None:
        self._count += 1
        settings = replace(
            self._settings,
            identity=self._identity,
            keeper=self._session.id,
            session=self._session.name_session(),
        )
        try:
            child = WorkerProcess(settings, self._mark, self._count, self._clock.boot_ms())
        except OSError as error:
            self._warn(f"worker {slot.number} cannot be started: {error.strerror}; trying again")
            return None
        self._selector.register(child.link, selectors.EVENT_READ, lambda: self._read_beats(slot, child))
        self._selector.register(child.output, selectors.EVENT_READ, lambda: self._read_output(slot, child))
        self._report(f"worker {slot.number} started (pid {child.pid})")
        return child

    def _read_beats(self, slot: WorkerSlot, child: WorkerProcess) -> None:
        was_ready = child.is_ready
        if not child.read_beats(self._clock.boot_ms()):
            self._forget(child.link)
        if child.is_ready and not was_ready:
            self._has_worked = True
            self._report(f"worker {slot.number} is ready (pid {child.pid})")

    def _read_output(self, slot: WorkerSlot, child: WorkerProcess) -> None:
        lines = child.read_output()
        if lines is None:
            self._forget(child.output)
            lines = child.tail.end()
        for line in lines:
            self._on_output(slot.number, line)

    def _forget(self, source: Any) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(source)

    # Deaths -------------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Reap every process that has ended: our workers, and orphans that were reparented to us."""
        while True:
            try:
                # WNOWAIT: until it is reaped, its pid and process group
                # cannot be given to a stranger that we would kill.
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
            self._companions.reap(status)
            with suppress(ChildProcessError):
                # A companion, or an orphan that came to us: if it is not
                # reaped, it stays a zombie for as long as we live.
                os.waitpid(status.si_pid, os.WNOHANG)

    def _died(self, slot: WorkerSlot, child: WorkerProcess) -> None:
        self._forget(child.link)
        self._read_output(slot, child)
        self._forget(child.output)
        for line in child.tail.end():
            self._on_output(slot.number, line)
        # After its last output: the evidence quotes the last lines.
        evidence = child.evidence()
        is_stopping = child.is_stopping or is_stop(evidence)
        pause_ms = slot.remove(child, self._clock.boot_ms(), is_stop=is_stopping)
        self._dead.append((slot, child))
        if not child.is_stopping:
            later = f"; restarting in {pause_ms / 1000:g} s" if pause_ms else ""
            self._warn(f"worker {slot.number} (pid {child.pid}) {evidence.note}{later}")
        if slot in self._rolling and child.is_ready is False and not child.is_stopping:
            self._rolling.clear()
            self._warn(
                "the new code does not start: rolling restart aborted, the other workers keep the old code"
            )
        # Once a worker has worked, settings and code are right: then the same exit code is a passing trouble.
        ending = self._reason_to_end(evidence.exit_code) if not self._has_worked else None
        if ending is not None:
            self._exit_code = ending

    def _reason_to_end(self, code: int | None) -> int | None:
        """Return our exit code if the next worker would fail in the same way; the worker printed why."""
        if code == EXIT_AWAY:  # the store's server may come back soon
            return EXIT_STORE if self._clock.boot_ms() > self._patient_until_ms else None
        return code if code in (EXIT_USAGE, EXIT_STORE) else None

    def _declare_dead(self) -> None:
        """Kill the descendants of dead workers; end the sessions of workers without descendants."""
        marks = {child.mark for child in self._living()} | self._companions.marks
        pids = {child.pid for child in self._living()} | self._companions.pids | {os.getpid()}
        for slot, child in list(self._dead):
            # A process of another worker, dead or alive, must not be taken for this one's.
            others = marks | {one.mark for _, one in self._dead} - {child.mark}
            left = descendants.sweep(child.mark, others, pids, self._ancestry.may_be_of)
            self._reap_killed(left)
            if left:
                continue  # killed now; the next sweep shows whether they are gone
            # CRASH: the session is open, its lock released: others find it by that; no descendant is left.
            if self._session.declare(child):
                self._dead.remove((slot, child))
                child.close()

    def _scan_descendants(self, *, is_urgent: bool = False) -> None:
        workers = {child.pid: child.mark for child in self._living()}
        self._ancestry.scan(workers, self._clock.boot_ms(), is_urgent=is_urgent)

    def _reap_killed(self, pids: list[int]) -> None:
        for pid in pids:
            with suppress(ChildProcessError):  # not reparented to us yet, or not our child
                os.waitpid(pid, os.WNOHANG)

    # Watching -----------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Ask a worker without beats for its stacks, and kill it a second later."""
        now_ms = self._clock.boot_ms()
        for slot in self.slots:
            for child in slot.children():
                if child.status is not None or now_ms < self._limit_ms(child):
                    continue
                if child.stacks_requested_ms is None:
                    what = "its event loop is blocked" if child.is_ready else "it does not become ready"
                    silent = (now_ms - child.beat_ms) / 1000
                    self._warn(f"worker {slot.number} (pid {child.pid}): {what}, {silent:.0f} s; its stacks:")
                    child.ask_for_stacks(now_ms)
                elif child.hung_seconds is None:
                    child.hung_seconds = (now_ms - child.beat_ms) / 1000
                    self._scan_descendants(is_urgent=True)
                    child.kill()

    def _end_halted(self) -> None:
        """Kill the workers that a halt ends. Their runs lose no life; those that it does not hold go on."""
        by_session = {child.session: slot for slot in self.slots for child in slot.children()}
        halted = self._halted.check(by_session.keys(), self._clock.boot_ms())
        if halted:
            self._scan_descendants(is_urgent=True)
        for session, halt in halted.items():
            slot = by_session[session]
            self._warn(f"worker {slot.number} executes what {halt.id} halts ({halt.what}): killing it")
            slot.end(session, self._clock.boot_ms())

    # Signals ------------------------------------------------------------------------------------

    def _handle_signals(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if number != signal.SIGHUP:
                self._report(f"{signal.Signals(number).name}: stopping")
                self._exit_code = 0
            elif self._terminal and not os.isatty(0):
                self._exit_code = 0  # the terminal was closed
            else:
                self._report("SIGHUP: restarting the workers with new code, one after the other")
                self._rolling = list(self.slots)

    def _roll(self) -> None:
        """Replace the workers one by one: kill the old one once its successor is ready."""
        while self._rolling:
            slot = self._rolling[0]
            if slot.successor is None:
                slot.successor = self._start(slot)
                return
            if not slot.successor.is_ready:
                return
            self._scan_descendants(is_urgent=True)
            slot.promote()
            self._rolling.pop(0)
            if not self._rolling:
                self._report("all workers have the new code")

    def _stop(self) -> None:
        self._scan_descendants(is_urgent=True)
        for slot in self.slots:
            slot.clear()
        self._companions.stop()
        # A process that cannot be killed, or a store that is away, must not keep a stop from ending.
        deadline_ms = self._clock.boot_ms() + _STOP_MS
        while (self._dead or self._living()) and self._clock.boot_ms() < deadline_ms:
            self._reap()
            self._declare_dead()
            if self._dead or self._living():
                self._selector.select(_SWEEP_MS / 1000)
        self._session.end()


def _drain(source: socket.socket) -> None:
    with suppress(BlockingIOError):
        while source.recv(4096):
            pass
