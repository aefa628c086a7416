"""The supervisor's own session in the store; it decides when the sessions of its workers are dead.

While the supervisor lives, no other process declares its workers dead, because their descendants must be gone
first. After its death any process may release their runs. Whether their descendants are gone is known only
when another supervisor on the machine, a new one or a neighbour, has swept them. See docs/decisions/0009.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from selectors import EVENT_READ, BaseSelector

from msgspec.structs import replace

from ninelives.core.clock import Clock
from ninelives.core.errors import Corrupt, LeaseLost, NineLivesError, StoreUnavailable
from ninelives.core.model.session import Cause, Evidence, Fate, NewSession, Session
from ninelives.engine.machine import host, machine
from ninelives.processes import is_dead
from ninelives.store import Store
from ninelives.supervisor import descendants
from ninelives.supervisor.evidence import is_stop
from ninelives.supervisor.process import WorkerProcess

# At the start there is time; at work the loop must go on, and the next second tries again.
_SWEEPS, _SWEEPS_AT_WORK = 100, 3
_LOG_ENTRIES = 1_000
_WATCH_MS = 1_000
_REMEMBER_MS = 10_000
"""How long we remember a neighbour's session that others have ended, to prove that its process is gone."""


class SupervisorSession:
    """A session that executes no runs."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        lease_seconds: float,
        report: Callable[[str], None],
        selector: BaseSelector,
    ) -> None:
        self._store, self._clock, self._report = store, clock, report
        self._lease_ms = int(lease_seconds * 1000)
        self._host = host()
        self._renewed_ms = self._watched_ms = 0
        self._selector = selector
        self._neighbours: dict[str, int] = {}
        self._kept: dict[str, tuple[Session, int]] = {}
        self.id = ""

    def begin(self) -> None:
        """Clean up after dead supervisors of this store on this machine, and start our own session."""
        # Before we register: what dead supervisors left must be gone before our workers take over its runs.
        self._clean_up(is_swept=self._sweep(_SWEEPS))
        self._register()

    def _sweep(self, times: int) -> bool:
        """Kill the workers of this store's dead supervisors; True when the last sweep found none."""
        orphans = descendants.sweep_orphaned_workers(self._store.url)
        if orphans:
            self._report(f"another supervisor died on this machine: killed {len(orphans)} of its processes")
        for _ in range(times):
            if not orphans:
                break
            orphans = descendants.sweep_orphaned_workers(self._store.url)
        return not orphans

    def _clean_up(self, *, is_swept: bool) -> None:
        """End the sessions of dead supervisors' workers; those on this machine as gone, if all was swept."""
        known = self._store.list_sessions()
        # A lease that runs says nothing about the process: the kernel knows.
        living = {one.id for one in known if one.fate is Fate.LIVES and not self._is_gone(one)}
        kept = [one for one in (*known, *self._ended(known)) if one.keeper and one.host == self._host]
        if is_swept:
            self._end_gone(one for one in kept if one.keeper not in living)
        self._store.end_sessions(None, Cause.DIED)

    def _end_gone(self, orphaned: Iterable[Session]) -> list[str]:
        """End the sessions whose dead supervisor left no process here; call this right after a sweep."""
        # Asked again, by pid alone: a sweep sees only the processes
        # of this store's URL, and a store may have several.
        left = [one.id for one in orphaned if not descendants.is_left_of(_pid_in(one.keeper))]
        evidence = Evidence(is_gone=True, note="its supervisor died, and all of its processes are gone")
        if left:
            self._store.end_sessions(left, Cause.DIED, evidence=dict.fromkeys(left, evidence))
        return left

    def _ended(self, known: Sequence[Session]) -> list[Session]:
        """Return sessions that others ended before us without knowing whether their processes are gone.

        The recovery log names the sessions that had runs: only there can an action be in doubt.
        """
        try:
            logged = {entry.session for entry in self._store.read_log(limit=_LOG_ENTRIES)}
        except Corrupt as error:  # then a person decides about actions in doubt
            self._report(f"the recovery log cannot be read: {error.what}")
            return []
        found = (self._store.read_session(name) for name in logged - {one.id for one in known} if name)
        return [one for one in found if one is not None and one.fate is Fate.UNKNOWN]

    def _is_gone(self, session: Session) -> bool:
        """Return whether a session's process is gone; its lease may still be valid."""
        return session.host == self._host and is_dead(session.pid)

    def _register(self) -> None:
        self.id = self.name_session()
        # Read before it is sent: the next renewal is then due early rather than late.
        self._renewed_ms = self._clock.boot_ms()
        self._store.register_session(
            NewSession(id=self.id, host=self._host, pid=os.getpid(), lease_ms=self._lease_ms)
        )

    def name_session(self) -> str:
        """Make a new session id, for us or for a worker."""
        return f"{machine()}-{os.getpid()}-{secrets.token_hex(4)}"

    @property
    def due_ms(self) -> int:
        """When to renew the session."""
        return self._renewed_ms + self._lease_ms // 3

    def renew(self) -> None:
        """Renew the session if it is due. If it was lost, register a new one for future workers."""
        now_ms = self._clock.boot_ms()
        if now_ms < self.due_ms:
            return
        # Also if it fails: with a server away, the next try comes in a third of a lease, not in a busy loop.
        self._renewed_ms = now_ms
        try:
            try:
                self._store.renew_session(self.id)
            except LeaseLost:
                self._report(
                    "the supervisor's lease expired (sleeping machine or unreachable server?); "
                    "starting a new session"
                )
                self._register()
        except StoreUnavailable as error:
            self._report(f"the store cannot be reached: {error.what}")

    # Neighbours ---------------------------------------------------------------------------------

    def watch(self) -> None:
        """Watch the processes of other sessions on this machine, to notice their deaths at once."""
        now_ms = self._clock.boot_ms()
        if now_ms - self._watched_ms < _WATCH_MS:
            return
        self._watched_ms = now_ms
        try:
            sessions = self._store.list_sessions()
        except NineLivesError:
            return  # the next renewal reports it
        theirs = {
            one.id: one.pid
            for one in sessions
            # Our own workers are reaped by us: waitpid says more than a pidfd.
            if one.host == self._host and self.id not in (one.id, one.keeper)
        }
        for name in self._neighbours.keys() - theirs.keys():
            self._forget(name)
        for name in theirs.keys() - self._neighbours.keys():
            with suppress(OSError):  # gone, or in another namespace: the workers' polling finds it
                self._neighbours[name] = fd = os.pidfd_open(theirs[name])
                self._selector.register(fd, EVENT_READ, partial(self._neighbour_died, name))
        with suppress(NineLivesError):  # the next renewal reports it, and we try again
            self._clean_up_neighbours(sessions, now_ms)

    def _clean_up_neighbours(self, sessions: Sequence[Session], now_ms: int) -> None:
        """Clean up after a neighbour that died with its workers, as a new supervisor would at its start.

        Not every store notices that death, but the kernel does. The conditions are stricter than at our
        start: the supervisor's process, the worker's process and its whole process group must be gone.
        """
        for one in sessions:
            if one.host == self._host and one.keeper not in ("", self.id):
                self._kept[one.id] = (one, now_ms)
        self._kept = {
            name: (one, seen_ms)
            for name, (one, seen_ms) in self._kept.items()
            if now_ms - seen_ms < _REMEMBER_MS
        }
        supervisors = {one.keeper for one, _ in self._kept.values()}
        listed = [one for one in sessions if one.id in supervisors and one.fate is Fate.LIVES]
        living = {one.id for one in listed if not self._is_gone(one)}
        orphaned = [one for one, _ in self._kept.values() if self._is_orphaned(one, living)]
        if orphaned and self._sweep(_SWEEPS_AT_WORK):
            for name in self._end_gone(orphaned):
                del self._kept[name]

    def _is_orphaned(self, session: Session, living: Collection[str]) -> bool:
        number = _pid_in(session.keeper)
        is_orphan = session.keeper not in living and number != 0 and is_dead(number)
        return is_orphan and self._is_gone(session) and not descendants.is_group(session.pid)

    def _forget(self, name: str) -> None:
        fd = self._neighbours.pop(name)
        self._selector.unregister(fd)
        os.close(fd)

    def _neighbour_died(self, name: str) -> None:
        """Release the runs of dead sessions; the store decides which those are, by their locks."""
        self._forget(name)
        # Watch again at once: the dead one's workers may be orphans now.
        self._watched_ms = 0
        with suppress(NineLivesError):
            self._store.end_sessions(None, Cause.DIED)

    # Our workers --------------------------------------------------------------------------------

    def declare(self, child: WorkerProcess) -> bool:
        """End the session of a worker without descendants; False when the store is unreachable now.

        We use its id even if it is not listed: a session whose lease expired has already ended, but runs with
        actions in doubt still wait for the proof that its process is gone.
        """
        seen = child.evidence()
        cause = Cause.STOPPED if child.is_stopping or is_stop(seen) else Cause.DIED
        evidence = replace(seen, is_gone=True)
        try:
            theirs = [
                one.id
                for one in self._store.list_sessions()
                if one.pid == child.pid and one.host == self._host and one.id not in (self.id, child.session)
            ]
            theirs.append(child.session)
            self._store.end_sessions(theirs, cause, evidence=dict.fromkeys(theirs, evidence))
        except StoreUnavailable:
            return False
        except NineLivesError as error:
            self._report(f"the session of pid {child.pid} could not be ended: {error}")
        return True

    def end(self) -> None:
        """End our own session."""
        try:
            self._store.end_sessions([self.id], Cause.STOPPED)
        except NineLivesError as error:
            self._report(f"the supervisor's session could not be ended: {error}")


def _pid_in(session: str) -> int:
    """Return the pid in the id of a supervisor's session (`name_session`); 0 if there is none."""
    *_, number = ("0", *session.rsplit("-", 2)[1:2])
    return int(number) if number.isdecimal() else 0
