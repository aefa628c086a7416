"""The workload: a worker process that carries scripted runs to their ends, killed and started at will.

One life is `live`: end the dead, create what is not there, claim, carry on, answer people, until all runs
have ended. Every method of both store protocols occurs. A life that finds everything done ends at once.
Where it was killed before does not show in what it leaves: see `judge`.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, cast

from ninelives.core.errors import RunFinished, StaleAnswer, UsageError
from ninelives.core.model.capsule import Move
from ninelives.core.model.commit import Outcome, Verdict
from ninelives.core.model.counter import Counter
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.key import KeyState, SettleKey
from ninelives.core.model.log_entry import Happening, NewEntry
from ninelives.core.model.run import Control, NewRun, RunQuery, RunRow, State
from ninelives.core.model.session import Cause, NewSession
from ninelives.engine.commit.committer import Committer
from ninelives.engine.commit.ticket import NO_EXTRAS, Draft, Extras, Tail, Ticket
from ninelives.stores.clock import SystemClock
from tests.crash import forkserver, mutants, phases
from tests.crash.killing import KillingStore, KillPoint, Mark
from tests.crash.ledger import Fact, Ledger, read
from tests.crash.script import OUTCOMES, Walk, body_of, script_of
from tests.crash.stores import AnyStore, is_file, open_at

_STUCK_SECONDS = 45.0
AGENT = "scripted"
DOOMED = "doomed"
Mode = Literal["inline", "posted"]


def run_ids(runs: int) -> list[str]:
    """Return the ids of the runs that go through their scripts."""
    return [f"run-{number}" for number in range(runs)]


def all_keys(seed: int, runs: int) -> list[str]:
    """Return the business keys of all scripts."""
    return sorted(
        {step.key for number in range(runs) for step in script_of(seed, number) if step.do in _KEYED}
    )


_KEYED = ("pay", "decline", "doubt")


class Post:
    """Where tickets come home in `posted` mode: acknowledged in the ledger as they arrive."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._arrived: dict[Ticket, queue.SimpleQueue[None]] = {}

    def expect(self, ticket: Ticket) -> queue.SimpleQueue[None]:
        """Return what is told when the ticket is home."""
        return self._arrived.setdefault(ticket, queue.SimpleQueue())

    def deliver(self, tickets: Sequence[Ticket]) -> None:
        """Take tickets, from the committing thread."""
        for ticket in tickets:
            if ticket.verdict is not None and ticket.verdict.outcome is Outcome.COMMITTED:
                acknowledge(self._ledger, ticket.tail, ticket.records, ticket.extras)
            self.expect(ticket).put(None)


def acknowledge(ledger: Ledger, tail: Tail, drafts: Sequence[Sequence[Any]], extras: Extras) -> None:
    """Write down that a commit was acknowledged."""
    outcome = drafts[-1][1] if drafts and drafts[-1][0] in OUTCOMES else ""
    ledger.write(
        Fact.APPENDED, tail.run, outcome, seq=tail.length - 1, check=tail.head.hex(), epoch=tail.epoch
    )
    for op in extras.keys:
        if isinstance(op, SettleKey):
            ledger.write(Fact.SETTLED, tail.run, key=op.key)


class Desk:
    """One claimed run at work: the world that its script sees."""

    def __init__(self, life: Life, run: RunRow) -> None:
        self.seed, self._life = life.seed, life
        journal = life.store.load_journal(run.id)
        self._tail = Tail(journal.run)
        self._touched: set[tuple[str, str]] | None = None
        for record in journal.records:
            if record.kind in OUTCOMES:
                life.ledger.write(Fact.FOUND, run.id, record.step)
        self.walk = Walk(self, journal, script_of(life.seed, int(run.id.partition("-")[2])))

    def commit(self, drafts: list[Draft], extras: Extras = NO_EXTRAS) -> Verdict:
        """Commit in the mode of this life, and acknowledge."""
        life, tail = self._life, self._tail
        life.ledger.write(Fact.ABOUT, tail.run, "commit", seq=tail.length)
        if life.mode == "inline":
            is_alone = len(drafts) == 1 and extras is NO_EXTRAS
            appended = life.committer.append(tail, drafts[0]) if is_alone else None
            verdict = appended or life.committer.commit(tail, drafts, extras)
            if verdict.outcome is Outcome.COMMITTED:
                acknowledge(life.ledger, tail, drafts, extras)
        else:
            ticket = life.committer.submit(tail, drafts, extras, home=life.post)
            life.post.expect(ticket).get()
            verdict = ticket.result()
        if verdict.error is not None:
            raise verdict.error
        return verdict

    def touch(self, step: str, key: str = "") -> None:
        """Have an effect, which the ledger is."""
        self._life.ledger.write(Fact.EFFECT, self._tail.run, step, key=key)

    def touched(self, step: str, key: str = "") -> bool:
        """Ask the ledger whether the effect happened: under the key, or of this run's step."""
        effects = (entry for entry in read(self._life.ledger.path) if entry.fact is Fact.EFFECT)
        if key:
            return any(entry.key == key for entry in effects)
        return any((entry.run, entry.name) == (self._tail.run, step) for entry in effects)

    def key_state(self, key: str) -> tuple[KeyState, bytes] | None:
        """Read a business key."""
        found = self._life.store.read_keys([key]).get(key)
        return None if found is None else (found.state, found.body)


class Life:
    """One life of the worker."""

    def __init__(self, store: AnyStore, ledger: Ledger, seed: int, runs: int, mode: Mode) -> None:
        self.store, self.ledger, self.seed, self.runs, self.mode = store, ledger, seed, runs, mode
        self.committer = Committer(store, SystemClock())
        self.post = Post(ledger)
        self.session = f"life-{os.getpid()}-{os.urandom(4).hex()}"

    def go(self) -> None:
        """Carry all runs to their ends."""
        store, ledger = self.store, self.ledger
        ledger.write(Fact.LIFE, name=self.session)
        store.now_ms()
        store.read_clock()
        store.migrate()
        store.register_session(NewSession(id=self.session, host="here", pid=os.getpid()))
        self._create()
        until = time.monotonic() + _STUCK_SECONDS
        while not self._is_over():
            if time.monotonic() > until:
                raise AssertionError(self._still())
            store.end_sessions(None, Cause.DIED)  # a server may take a moment to see a death
            store.renew_session(self.session, counts=[Counter("actions", {"agent": "a"}, 1)])
            for solo in (False, True):
                self._advance(store.claim_runs(self.session, 8, {AGENT: 8}, solo=solo).runs)
            self._be_outside()
            store.wait_for_work(0.0)
        self._look_around()
        store.end_sessions([self.session], Cause.STOPPED)
        store.close()
        ledger.write(Fact.DONE)

    def _create(self) -> None:
        store, ledger = self.store, self.ledger
        (digest,) = store.put_blobs([body_of(self.seed, "input", 90_000)])
        ledger.write(Fact.KEPT, check=digest.hex())
        new = [
            NewRun(id=id_, agent=AGENT, fingerprint=b"same", body=b"", blobs=(digest,))
            for id_ in run_ids(self.runs)
        ]
        far = 2**60
        new.append(NewRun(id=DOOMED, agent=AGENT, fingerprint=b"same", body=b"", due_ms=far))
        for run in store.create_runs(new):
            if isinstance(run, UsageError):
                raise run
            ledger.write(Fact.CREATED, run.id)
        store.control_run(DOOMED, Control.CANCEL)
        for id_ in run_ids(self.runs):
            store.send_signal(id_, "go", f"signal for {id_}".encode(), id="one")
            ledger.write(Fact.SIGNALLED, id_, "one")
        for control in (Control.PAUSE, Control.RESUME):
            with suppress(RunFinished):
                store.control_run(run_ids(self.runs)[0], control)

    def _advance(self, claimed: Sequence[RunRow]) -> None:
        for run in claimed:
            self.ledger.write(Fact.CLAIMED, run.id, self.session, epoch=run.epoch)
            self.store.salvage(run.id, run.epoch)  # of a sound journal: nothing
        self.store.load_journals([run.id for run in claimed])
        self.store.read_news({run.id: -1 for run in claimed})
        if self.mode == "inline":
            for run in claimed:
                Desk(self, run).walk.go()
            return
        threads = [threading.Thread(target=self._alone, args=(run,)) for run in claimed]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _alone(self, run: RunRow) -> None:
        try:
            Desk(self, run).walk.go()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(3)

    def _be_outside(self) -> None:
        """Be the people: answer what is asked, retry what failed. What a run only muses about is its own."""
        for item in self.store.list_inbox():
            if item.kind is not ItemKind.APPROVAL:
                continue
            try:
                self.store.answer_item(item.id, digest=item.digest, body=b"yes " + item.body, by="somebody")
            except StaleAnswer:
                continue
            self.ledger.write(Fact.ANSWERED, item.run, item.id)
        for run in self.store.list_runs(RunQuery(states=(State.FAILED,))):
            self.store.control_run(run.id, Control.RETRY)

    def _is_over(self) -> bool:
        rows = [self.store.read_run(id_) for id_ in run_ids(self.runs)]
        return all(row is not None and row.state is State.COMPLETED for row in rows)

    def _still(self) -> str:
        """Say where those stand that do not come to their ends."""
        rows = [self.store.read_run(id_) for id_ in run_ids(self.runs)]
        left = [row for row in rows if row is not None and row.state is not State.COMPLETED]
        tails = {row.id: self.store.load_journal(row.id).records[-3:] for row in left}
        keys = self.store.read_keys(all_keys(self.seed, self.runs))
        return (
            f"stuck: {left}\nends of journals: {tails}\nkeys: {keys}\nsessions: {self.store.list_sessions()}"
        )

    def _look_around(self) -> None:
        store = self.store
        store.list_sessions()
        store.read_session(self.session)
        entry = NewEntry(kind=Happening.COMPLETED, run="", session=self.session, body=b"{}")
        store.append_log([entry])
        store.read_log(limit=5)
        store.read_news(dict.fromkeys(run_ids(self.runs), -1))
        store.wait_for_output(0.0)
        store.stats()
        store.gauges()
        store.changed_runs()
        store.list_keys()
        store.import_keys([])
        store.read_keys(all_keys(self.seed, self.runs))
        store.get_blobs(store.put_blobs([body_of(self.seed, "input", 90_000)]))
        store.prune(ended_before_ms=0, log_before_ms=store.now_ms() - 1, agents={"nobody": 1})
        capsule = store.export_run(run_ids(self.runs)[0])
        if store.import_runs([capsule])[0].is_new:
            raise AssertionError("a run was imported into the store that has it")
        with suppress(RunFinished):
            store.depart_runs([run_ids(self.runs)[0]], Move(id=self.session, to="nowhere", url="nowhere"))
        with suppress(UsageError):
            store.settle_move(self.session, arrived=False)
        known = store.read_documents(self.session)
        done = [Counter("documents", {}, 1)]
        store.write_document(self.session, b"1", version=known[0].version if known else 0, counts=done)
        written = [one.value for one in store.read_counters() if one.name == "documents"]
        versions = sum(one.version for one in store.read_documents())
        if sum(written) != versions:
            raise AssertionError(f"{written} writes of documents are counted, and {versions} were made")
        store.count_runs()
        store.verify_part()
        faults = store.verify()
        if faults:
            raise AssertionError(f"the store does not verify: {faults}")


def live(
    home: str,
    seed: int,
    *,
    runs: int = 4,
    mode: Mode = "inline",
    point: dict[str, Any] | None = None,
    mutant: str = "",
    trace: bool = False,
) -> list[str]:
    """Live one life in `home`; a task of the fork server. Returns the store calls that were made."""
    mutants.plant(mutant)
    mark = Mark(Path(home) / "mark")
    is_watched = trace and is_file(Path(home))
    if is_watched:
        phases.watch(mark)
    ledger = Ledger(Path(home) / "ledger")
    if forkserver.ack_fd >= 0:
        ledger.announce(forkserver.ack_fd)
    kill_at = KillPoint(point["call"], point["side"]) if point else None
    store = KillingStore(open_at(Path(home)), kill_at, None if is_watched else mark)
    Life(cast("AnyStore", store), ledger, seed, runs, mode).go()
    return store.calls
