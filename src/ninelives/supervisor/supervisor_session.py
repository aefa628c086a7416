"""The supervisor's own session, by which it keeps those of its workers, and says which of them are dead.

While it lives, nobody else declares its workers dead: first all that they have started must be gone. When it
is dead, anybody may release their runs; what became of their strays is known once another supervisor on the
machine, the next one or one that is there, has swept them.
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
from ninelives.store import Store
from ninelives.supervisor import descendants
from ninelives.supervisor.evidence import is_stop
from ninelives.supervisor.process import WorkerProcess

_SWEEPS, _SWEEPS_AT_WORK = 100, 3
_LOG_ENTRIES = 1_000
_LOOK_MS = 1_000
_REMEMBER_MS = 10_000
"""How long a neighbour that others have ended is looked for, to prove that it is gone."""


class SupervisorSession:
    """A session that executes nothing."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        lease_seconds: float,
        tell: Callable[[str], None],
        selector: BaseSelector,
    ) -> None:
        self._store, self._clock, self._tell = store, clock, tell
        self._lease_ms = int(lease_seconds * 1000)
        self._host = host()
        self._renewed_ms = self._looked_ms = 0
        self._selector = selector
        self._neighbours: dict[str, int] = {}
        self._kept: dict[str, tuple[Session, int]] = {}
        self.id = ""

    def begin(self) -> None:
        """Take over from supervisors of this store that died on this machine, and begin our own session."""
        self._inherit(is_swept=self._sweep(_SWEEPS))
        self._register()

    def _sweep(self, times: int) -> bool:
        """Kill what is left of this store's dead supervisors; True when nobody was there at the last look."""
        orphans = descendants.sweep_orphaned_fleets(self._store.url)
        if orphans:
            self._tell(f"a supervisor died here: {len(orphans)} of its processes were still there, killed")
        for _ in range(times):
            if not orphans:
                break
            orphans = descendants.sweep_orphaned_fleets(self._store.url)
        return not orphans

    def _inherit(self, *, is_swept: bool) -> None:
        """End the sessions of dead supervisors' workers; nothing is left of those on this machine."""
        known = self._store.list_sessions()
        living = {one.id for one in known if one.fate is Fate.LIVES and not self._is_gone(one)}
        kept = [one for one in (*known, *self._ended(known)) if one.keeper and one.host == self._host]
        if is_swept:
            self._end_gone(one for one in kept if one.keeper not in living)
        self._store.end_sessions(None, Cause.DIED)

    def _end_gone(self, orphaned: Iterable[Session]) -> list[str]:
        """End the sessions whose dead supervisors have left nothing here; all was swept just now."""
        left = [one.id for one in orphaned if not descendants.is_left_of(_number_in(one.keeper))]
        evidence = Evidence(is_gone=True, note="its supervisor died, and all of its processes are gone")
        if left:
            self._store.end_sessions(left, Cause.DIED, evidence=dict.fromkeys(left, evidence))
        return left

    def _ended(self, known: Sequence[Session]) -> list[Session]:
        """Return sessions that others have ended before us, where it is not known whether they are gone.

        The recovery log names those that had runs: only with them can an action be in doubt.
        """
        try:
            told = {entry.session for entry in self._store.read_log(limit=_LOG_ENTRIES)}
        except Corrupt as error:  # then a person is asked about what is in doubt
            self._tell(f"the recovery log cannot be read: {error.what}")
            return []
        found = (self._store.read_session(name) for name in told - {one.id for one in known} if name)
        return [one for one in found if one is not None and one.fate is Fate.UNKNOWN]

    def _is_gone(self, session: Session) -> bool:
        """Tell whether a session's process is not there any more; its lease may run on for a while."""
        return session.host == self._host and descendants.is_gone(session.pid)

    def _register(self) -> None:
        self.id = self.name_session()
        self._renewed_ms = self._clock.boot_ms()
        self._store.register_session(
            NewSession(id=self.id, host=self._host, pid=os.getpid(), lease_ms=self._lease_ms)
        )

    def name_session(self) -> str:
        """Make a name for a session, ours or that of a worker to be started."""
        return f"{machine()}-{os.getpid()}-{secrets.token_hex(4)}"

    @property
    def due_ms(self) -> int:
        """When the session is to be renewed."""
        return self._renewed_ms + self._lease_ms // 3

    def renew(self) -> None:
        """Renew the session if it is time; a lost one is followed by a new one, for the workers to come."""
        now_ms = self._clock.boot_ms()
        if now_ms < self.due_ms:
            return
        self._renewed_ms = now_ms
        try:
            try:
                self._store.renew_session(self.id)
            except LeaseLost:
                self._tell(
                    "the supervisor's lease was lost: was the machine asleep, or the store's server away?"
                )
                self._register()
        except StoreUnavailable as error:
            self._tell(f"the store cannot be reached: {error.what}")

    # Neighbours ---------------------------------------------------------------------------------

    def watch(self) -> None:
        """Watch the processes of other sessions on this machine, so that their deaths are noticed at once."""
        now_ms = self._clock.boot_ms()
        if now_ms - self._looked_ms < _LOOK_MS:
            return
        self._looked_ms = now_ms
        try:
            sessions = self._store.list_sessions()
        except NineLivesError:
            return  # told at the next renewal
        theirs = {
            one.id: one.pid
            for one in sessions
            if one.host == self._host and self.id not in (one.id, one.keeper)
        }
        for name in self._neighbours.keys() - theirs.keys():
            self._forget(name)
        for name in theirs.keys() - self._neighbours.keys():
            with suppress(OSError):  # gone, or of another namespace: the workers' own poll finds it
                self._neighbours[name] = fd = os.pidfd_open(theirs[name])
                self._selector.register(fd, EVENT_READ, partial(self._neighbour_died, name))
        with suppress(NineLivesError):  # told at the next renewal; we look again
            self._inherit_at_work(sessions, now_ms)

    def _inherit_at_work(self, sessions: Sequence[Session], now_ms: int) -> None:
        """Do for a neighbour that died as a whole what the next supervisor would do at its beginning.

        Not every store sees its end; the kernel does. We ask for more than at our beginning: neither may the
        supervisor's process be there, nor the worker's own, nor any of its process group.
        """
        for one in sessions:
            if one.host == self._host and one.keeper not in ("", self.id):
                self._kept[one.id] = (one, now_ms)
        self._kept = {
            name: (one, seen_ms)
            for name, (one, seen_ms) in self._kept.items()
            if now_ms - seen_ms < _REMEMBER_MS
        }
        keepers = {one.keeper for one, _ in self._kept.values()}
        told = [one for one in sessions if one.id in keepers and one.fate is Fate.LIVES]
        living = {one.id for one in told if not self._is_gone(one)}
        orphaned = [one for one, _ in self._kept.values() if self._is_orphaned(one, living)]
        if orphaned and self._sweep(_SWEEPS_AT_WORK):
            for name in self._end_gone(orphaned):
                del self._kept[name]

    def _is_orphaned(self, session: Session, living: Collection[str]) -> bool:
        number = _number_in(session.keeper)
        is_dead = session.keeper not in living and number != 0 and descendants.is_gone(number)
        return is_dead and self._is_gone(session) and not descendants.is_group(session.pid)

    def _forget(self, name: str) -> None:
        fd = self._neighbours.pop(name)
        self._selector.unregister(fd)
        os.close(fd)

    def _neighbour_died(self, name: str) -> None:
        """Release the runs of those whose locks were dropped; the store judges that, not we."""
        self._forget(name)
        self._looked_ms = 0
        with suppress(NineLivesError):
            self._store.end_sessions(None, Cause.DIED)

    # Our workers --------------------------------------------------------------------------------

    def declare(self, child: WorkerProcess) -> bool:
        """End the session of a worker of whom nothing is left; False when the store cannot be reached now.

        We know its name: one whose lease ran out before has ended, and is not listed; but who waits to know
        what became of its actions is to learn that it is gone.
        """
        seen = child.evidence()
        cause = Cause.STOPPED if child.is_told or is_stop(seen) else Cause.DIED
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
            self._tell(f"the session of pid {child.pid} could not be ended: {error}")
        return True

    def end(self) -> None:
        """End our own session."""
        try:
            self._store.end_sessions([self.id], Cause.STOPPED)
        except NineLivesError as error:
            self._tell(f"the supervisor's session could not be ended: {error}")


def _number_in(keeper: str) -> int:
    """Return the process number in the name of a supervisor's session (`name_session`); 0: there is none."""
    *_, number = ("0", *keeper.rsplit("-", 2)[1:2])
    return int(number) if number.isdecimal() else 0
