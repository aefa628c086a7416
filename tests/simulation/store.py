"""The store of the simulation: the reference store, and each process's own faulty line to it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from ninelives.core.errors import StoreBroken, StoreUnavailable
from ninelives.core.ids import parse_step_id, positional_key
from ninelives.core.journal.settlement import read_start
from ninelives.core.model.commit import Commit, Outcome, Verdict
from ninelives.core.model.run import Claims, Kind, Record
from ninelives.core.model.session import Session
from ninelives.core.rules import run_rules as rules
from ninelives.stores.memory import MemoryStore
from ninelives.stores.memory.tables import Transaction
from tests.simulation.ledger import Event, Fact, Ledger
from tests.simulation.machine import Machine, Process, Thread
from tests.simulation.nemesis import Nemesis, befall
from tests.simulation.plan import Strike

_HANG_SECONDS = 0.4
"""How long a call over a cut line takes to fail."""
_WAKE_SECONDS = 0.01
"""How long a wake-up is on its way, about: several become one."""
READS = frozenset(
    {
        "get_blobs",
        "list_inbox",
        "list_runs",
        "list_sessions",
        "load_journal",
        "load_journals",
        "read_keys",
        "read_log",
        "read_news",
        "read_run",
        "read_session",
    }
)
"""What may be asked again when the reply was lost."""


class Archive(MemoryStore):
    """The store itself, which never fails; with `locks`, it sees whether a process lives, as on one host."""

    def __init__(self, machine: Machine, ledger: Ledger, *, locks: bool) -> None:
        super().__init__(Process(machine, "store"))
        self._machine, self._ledger, self._locks = machine, ledger, locks
        self._turns: Counter[str] = Counter()
        self.written: defaultdict[str, list[Record]] = defaultdict(list)
        self.processes: dict[str, Process] = {}
        self.rang: list[Callable[[], None]] = []

    def claim_runs(self, session: str, *args: Any, **options: Any) -> Claims:
        """Give runs to a session, and note it."""
        claims = super().claim_runs(session, *args, **options)
        for run in claims.runs:
            self._note(Fact.CLAIMED, run.id, session, epoch=run.epoch)
        return claims

    def read_session(self, session: str) -> Session | None:
        """Return a session, and what its lock tells."""
        found, process = super().read_session(session), self.processes.get(session)
        if found is None or process is None or not self._locks:
            return found
        fate = rules.fate_of(found, is_dropped=process.is_dead, is_held=not process.is_dead)
        return replace(found, fate=fate)

    def _committed(self, tx: Transaction, commit: Commit) -> Verdict:
        before = self._contents.rows.runs.get(commit.run)
        verdict = super()._committed(tx, commit)
        if verdict.outcome is Outcome.COMMITTED and self._contents.rows.runs[commit.run] is not before:
            self._committed_by(commit)
        return verdict

    def _committed_by(self, commit: Commit) -> None:
        process = self._machine.current.process.name
        for one in commit.records:
            turn = self._turns[commit.run]
            told = Event(
                fact=Fact.RECORDED,
                at=self._machine.now,
                process=process,
                run=commit.run,
                turn=turn,
                step=one.step,
                name=one.kind,
                epoch=commit.epoch,
                identity=_identity(commit.run, turn, one) if one.kind in _STARTS else "",
            )
            self._ledger.write(told)
            self.written[commit.run].append(one)
            self._turns[commit.run] += one.kind is Kind.TURN
        if commit.change is not None:
            self._note(Fact.LEFT, commit.run, process, epoch=commit.epoch)

    def counts(self) -> tuple[int, int]:
        """Return how much has happened, and how much was emitted."""
        return self._happened, self._emitted

    def _note(self, fact: Fact, run: str, process: str, *, epoch: int) -> None:
        self._ledger.write(Event(fact=fact, at=self._machine.now, process=process, run=run, epoch=epoch))

    def _wake(self) -> None:
        super()._wake()
        for ring in self.rang:
            ring()

    def end_sessions(self, *args: Any, **options: Any) -> list[Session]:
        """End sessions, and note the runs that they left."""
        owned = [run for run in self._contents.rows.runs.values() if run.session is not None]
        ended = super().end_sessions(*args, **options)
        for session in ended:
            for run in owned:
                if run.session == session.id:
                    self._note(Fact.LEFT, run.id, session.id, epoch=run.epoch)
        return ended


_STARTS = frozenset({Kind.INTENT, Kind.DOUBT, Kind.VOIDED})


def _identity(run: str, turn: int, record: Record) -> str:
    """Return what a record of a start is about: its business key, or its place."""
    return read_start(record).k or positional_key(run, turn, *parse_step_id(record.step))


class Line:
    """The store as one process has it: calls take time, fail, and may be the last thing that it does."""

    def __init__(
        self, archive: Archive, process: Process, nemesis: Nemesis, tell: Callable[[Process, str], None]
    ) -> None:
        self._archive, self._process, self._nemesis, self._tell = archive, process, nemesis, tell
        self._machine = process.machine
        self._seen, self._read_so_far = archive.counts()
        self._listening: list[Thread] = []
        archive.rang.append(self._rung)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        called = partial(self._call, name)
        self.__dict__[name] = called
        return called

    cipher = None
    """It does not encrypt."""

    @property
    def url(self) -> str:
        """Name the store for people."""
        return "simulated:"

    @property
    def lossy(self) -> str | None:
        """Return None: what it acknowledges is kept."""
        return None

    def now_ms(self) -> int:
        """Return the store's clock."""
        return self._archive.now_ms()

    read_clock = now_ms

    def close(self) -> None:
        """Nothing depends on it."""

    def wait_for_work(self, timeout_seconds: float) -> bool:
        """Wait until something has happened that may make work."""
        seen = self._seen
        self._wait(timeout_seconds, lambda: self._archive.counts()[0] != seen)
        self._seen, woken = self._archive.counts()[0], self._archive.counts()[0] != seen
        return woken and not self._is_cut_off

    def wait_for_output(self, timeout_seconds: float) -> bool:
        """Wait until something was emitted."""
        seen = self._read_so_far
        self._wait(timeout_seconds, lambda: self._archive.counts()[1] != seen)
        self._read_so_far, woken = self._archive.counts()[1], self._archive.counts()[1] != seen
        return woken and not self._is_cut_off

    @property
    def _is_cut_off(self) -> bool:
        return self._process.cut_off_until > self._machine.now

    def _wait(self, seconds: float, happened: Callable[[], bool]) -> None:
        until = self._machine.now + seconds
        while not happened() and self._machine.now < until:
            me = self._machine.current
            self._listening.append(me)
            self._machine.block(until - self._machine.now)
            if me in self._listening:
                self._listening.remove(me)
        self._machine.block(self._machine.rng.expovariate(1 / _WAKE_SECONDS))

    def _rung(self) -> None:
        listening, self._listening = self._listening, []
        for thread in listening:
            self._machine.wake(thread)

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        machine, process, fault = self._machine, self._process, self._nemesis.next(name)
        strike = fault.strike if fault is not None else None
        self._tell(process, f"{name} {strike or ''}")
        seconds = fault.seconds if fault is not None else 0.0
        if fault is not None:
            befall(process, fault)
        machine.block(machine.rng.expovariate(3000) + (seconds if strike is Strike.SLOW else 0.0))
        if self._is_cut_off:
            machine.block(_HANG_SECONDS)
            raise StoreUnavailable("the line is cut", remedy="Wait")
        if strike is Strike.UNAVAILABLE:
            raise StoreUnavailable("the store is not there", remedy="Wait")
        try:
            answer = getattr(self._archive, name)(*args, **options)
        finally:
            if strike is Strike.KILL_AFTER:
                process.die()
        if strike is Strike.LOST_REPLY:
            if name in READS:
                raise StoreUnavailable("the reply was lost", remedy="Wait")
            raise StoreBroken("the reply was lost: it may have been done")
        machine.block(machine.rng.expovariate(3000) + (seconds if strike is Strike.LATE else 0.0))
        if name == "claim_runs" and answer.runs:
            has_left = any(run.left_by is not None for run in answer.runs)
            self._strike("takeover" if has_left else "claimed")
        return answer

    def _strike(self, site: str) -> None:
        """Be struck, perhaps, with runs in hand of which nothing is known yet."""
        fault = self._nemesis.next(site)
        if fault is None:
            return
        self._tell(self._process, f"{site} {fault.strike}")
        befall(self._process, fault)
        if fault.strike is Strike.KILL_AFTER:
            self._process.die()
        self._machine.block(fault.seconds if fault.strike in (Strike.SLOW, Strike.LATE) else 0.0)
