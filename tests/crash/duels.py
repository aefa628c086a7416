"""Duels: two processes want the same run or the same key, and the ledger tells who got what.

In each the loser stands still at the worst moment (SIGSTOP, or a barrier), so every time is the worst time.
All are tasks of the fork server, to be judged by `judge.check` afterwards.
"""

from __future__ import annotations

import os
from pathlib import Path

from ninelives.core.errors import UsageError
from ninelives.core.model.commit import Outcome, Park
from ninelives.core.model.key import ReserveKey, SettleKey
from ninelives.core.model.run import Kind, NewRun, RunRow
from ninelives.core.model.session import Cause, NewSession
from ninelives.engine.commit.committer import Committer
from ninelives.engine.commit.ticket import NO_EXTRAS, Draft, Extras, Tail
from ninelives.stores.clock import SystemClock
from tests.crash import mutants, processes
from tests.crash.ledger import Fact, Ledger
from tests.crash.stores import AnyStore, open_at
from tests.crash.workload import acknowledge

AGENT = "duellist"


class Duellist:
    """One process's side: its store, its session, its run."""

    def __init__(self, home: str, name: str) -> None:
        self.store: AnyStore = open_at(Path(home))
        self.ledger = Ledger(Path(home) / "ledger")
        self.name = name
        self.committer = Committer(self.store, SystemClock())
        lease_ms = 3_600_000  # nobody renews it
        self.store.register_session(NewSession(id=name, host="here", pid=os.getpid(), lease_ms=lease_ms))

    def create(self, run: str) -> None:
        """Create a run."""
        (made,) = self.store.create_runs([NewRun(id=run, agent=AGENT, fingerprint=b"f", body=b"")])
        if isinstance(made, UsageError):
            raise made
        self.ledger.write(Fact.CREATED, run)

    def claim(self) -> Tail:
        """Claim the one run that is due."""
        (run,) = self.store.claim_runs(self.name, 1, {AGENT: 1}).runs
        self.ledger.write(Fact.CLAIMED, run.id, self.name, epoch=run.epoch)
        return Tail(run)

    def commit(self, tail: Tail, drafts: list[Draft], extras: Extras = NO_EXTRAS) -> Outcome:
        """Commit and acknowledge."""
        verdict = self.committer.commit(tail, drafts, extras)
        if verdict.outcome is Outcome.COMMITTED:
            acknowledge(self.ledger, tail, drafts, extras)
        return verdict.outcome


def zombie(home: str, *, mutant: str = "", parks: bool = False) -> None:
    """An owner is stopped, another takes its run, the owner goes on as if nothing had happened."""
    gate_reader, gate_writer = os.pipe()
    ready_reader, ready_writer = os.pipe()

    def owner() -> None:
        mutants.plant(mutant)
        me = Duellist(home, "zombie")
        me.create("contested")
        tail = me.claim()
        me.commit(tail, [(Kind.RESULT, "first", b"1")])
        os.write(ready_writer, b"r")
        processes.read_byte(gate_reader)
        change = Extras(change=Park(None, "", 0)) if parks else NO_EXTRAS
        me.commit(tail, [(Kind.RESULT, "late", b"2")], change)

    pid = processes.fork(owner)
    processes.read_byte(ready_reader)
    processes.stop(pid)

    def heir() -> None:
        mutants.plant(mutant)
        me = Duellist(home, "heir")
        assert me.store.end_sessions(["zombie"], Cause.DIED)
        me.claim()

    _expect_end(processes.fork(heir))
    os.write(gate_writer, b"g")
    processes.resume(pid)
    _expect_end(pid)


def twins(home: str, *, mutant: str = "") -> None:
    """Two writers share one claim: what one appends, the other does not know when it parks the run."""
    mutants.plant(mutant)
    me = Duellist(home, "twins")
    me.create("shared")
    known = me.claim()
    row = me.store.read_run("shared")
    assert isinstance(row, RunRow)
    stale = Tail(row)
    me.commit(known, [(Kind.RESULT, "one", b"1"), (Kind.RESULT, "two", b"2")])
    me.commit(stale, [], Extras(change=Park(None, "", 0)))


def rivals(home: str, *, mutant: str = "", rounds: int = 20) -> None:
    """Two runs in two processes ask for one key at the same moment, again and again."""
    ready_reader, ready_writer = os.pipe()
    gates = [os.pipe(), os.pipe()]

    def rival(number: int) -> None:
        mutants.plant(mutant)
        me = Duellist(home, f"rival-{number}")
        for turn in range(rounds):
            run, key = f"rival-{number}-{turn}", f"prize-{turn}"
            (made,) = me.store.create_runs(
                [NewRun(id=run, agent=f"{AGENT}-{number}", fingerprint=b"f", body=b"")]
            )
            assert isinstance(made, RunRow)
            (claimed,) = me.store.claim_runs(me.name, 1, {f"{AGENT}-{number}": 1}).runs
            tail = Tail(claimed)
            os.write(ready_writer, b"r")
            processes.read_byte(gates[number][0])
            reserve = Extras(keys=(ReserveKey(key, "win", b"same", resumable=False),))
            if me.commit(tail, [(Kind.INTENT, "win", b"")], reserve) is Outcome.COMMITTED:
                me.ledger.write(Fact.EFFECT, run, "win", key=key)
                me.commit(tail, [(Kind.RESULT, "win", b"won")], Extras(keys=(SettleKey(key, b"won"),)))

    pids = [processes.fork(lambda number=number: rival(number)) for number in (0, 1)]  # type: ignore[misc]
    for _ in range(rounds):
        for _both in pids:
            processes.read_byte(ready_reader)
        for _, gate in gates:
            os.write(gate, b"g")
    for pid in pids:
        _expect_end(pid)


def _expect_end(pid: int) -> None:
    code = processes.collect(pid)
    if code != 0:
        raise AssertionError(f"a duellist ended with {code}")
