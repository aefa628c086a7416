"""The judge: holds what is in the store against what the ledger says was acknowledged.

I1 no acknowledged run is lost, nor anything else that was acknowledged; I2 no recorded step is executed
again; I3 a business key has one effect at most; I5 the chain verifies; fencing: nothing is acknowledged
for an owner after the next one's claim; I7 (when the runs have ended) the result is that of the run that
never crashed. The judge reads through the public protocol only, and believes the ledger.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from ninelives.core.errors import NineLivesError
from ninelives.core.model.inbox import ItemState
from ninelives.core.model.key import KeyState
from ninelives.core.model.run import Journal, Kind, RunQuery, RunRow
from tests.crash.ledger import Entry, Fact, read
from tests.crash.stores import AnyStore, open_at
from tests.crash.workload import all_keys


class Judge:
    """One look at one store."""

    def __init__(self, store: AnyStore, entries: list[Entry]) -> None:
        self._store, self._entries = store, entries
        self.violations: list[str] = []
        self._journals: dict[str, Journal] = {}

    def judge(self) -> list[str]:
        """Return all that is wrong."""
        for what, check in (
            ("acknowledged", self._acknowledged),
            ("executed", self._executed),
            ("owners", self._owners),
            ("chain", self._verified),
        ):
            try:
                check()
            except NineLivesError as error:
                self.violations.append(f"{what}: {type(error).__name__}: {error}")
        return self.violations

    def _of(self, fact: Fact) -> list[Entry]:
        return [entry for entry in self._entries if entry.fact is fact]

    def _journal(self, run: str) -> Journal:
        if run not in self._journals:
            self._journals[run] = self._store.load_journal(run, since=0)
        return self._journals[run]

    def _acknowledged(self) -> None:
        listed = {run.id for run in self._store.list_runs(RunQuery(limit=10_000))}
        for run in dict.fromkeys(entry.run for entry in self._of(Fact.CREATED)):
            if self._store.read_run(run) is None or run not in listed:
                self.violations.append(f"acknowledged run {run} is gone")
        for entry in self._of(Fact.APPENDED):
            self._is_appended(entry)
        for entry in self._of(Fact.SIGNALLED):
            journal = self._journal(entry.run)
            waiting = any(signal.id == entry.name for signal in journal.signals)
            taken = any(record.kind is Kind.SIGNAL for record in journal.records)
            if not (waiting or taken or journal.run.base):
                self.violations.append(f"signal {entry.name} to {entry.run} is gone")
        answered = {
            item.id
            for item in self._store.list_inbox(answered=True, limit=10_000)
            if item.state is not ItemState.OPEN
        }
        for entry in self._of(Fact.ANSWERED):
            if entry.name not in answered:
                self.violations.append(f"the answer to {entry.name} is gone")
        settled = {entry.key for entry in self._of(Fact.SETTLED)}
        keys = self._store.read_keys(sorted(settled))
        for key in sorted(settled):
            if key not in keys or keys[key].state is not KeyState.SETTLED:
                self.violations.append(
                    f"the settled key {key} is {keys[key].state if key in keys else 'gone'}"
                )
        self._store.get_blobs({bytes.fromhex(entry.check) for entry in self._of(Fact.KEPT)})

    def _is_appended(self, entry: Entry) -> None:
        journal = self._journal(entry.run)
        if entry.seq < journal.first:
            return  # pruned: the row's head and length vouch for it
        if journal.run.length <= entry.seq:
            self.violations.append(
                f"{entry.run} has {journal.run.length} records; record {entry.seq} was acknowledged"
            )
        elif journal.records[entry.seq - journal.first].check.hex() != entry.check:
            self.violations.append(f"record {entry.seq} of {entry.run} is not the one that was acknowledged")

    def _executed(self) -> None:
        """No step whose outcome was recorded is executed again; no key has two effects."""
        recorded: set[tuple[str, str]] = set()
        for entry in self._entries:
            step = (entry.run, entry.name)
            if entry.fact in (Fact.APPENDED, Fact.FOUND) and entry.name:
                recorded.add(step)
            elif entry.fact is Fact.EFFECT and step in recorded:
                self.violations.append(f"step {entry.name} of {entry.run} was recorded and executed again")
        effects = Counter(entry.key for entry in self._of(Fact.EFFECT) if entry.key)
        for key, times in effects.items():
            if times > 1:
                self.violations.append(f"the key {key} had {times} effects")
        for entry in self._of(Fact.SETTLED):
            if effects[entry.key] == 0:
                self.violations.append(f"the key {entry.key} is settled and had no effect")

    def _owners(self) -> None:
        owner: dict[str, Entry] = {}
        for entry in self._entries:
            if entry.fact is Fact.CLAIMED:
                before = owner.get(entry.run)
                if before is not None and before.epoch >= entry.epoch:
                    self.violations.append(f"epoch {entry.epoch} of {entry.run} was given twice")
                owner[entry.run] = entry
            elif entry.fact is Fact.APPENDED and entry.run in owner and entry.epoch < owner[entry.run].epoch:
                self.violations.append(f"a fenced owner wrote to {entry.run} (epoch {entry.epoch})")
        for run, entry in owner.items():
            found = self._store.read_run(run)
            if found is not None and found.epoch < entry.epoch:
                self.violations.append(f"the epoch of {run} went back to {found.epoch} from {entry.epoch}")

    def _verified(self) -> None:
        self.violations += [f"verify: {fault.run}: {fault.what}" for fault in self._store.verify()]


def final_state(store: AnyStore, keys: list[str]) -> dict[str, Any]:
    """Return all that the runs came to, without times and owners: equal for every way to get there."""
    runs = sorted(store.list_runs(RunQuery(limit=10_000)), key=lambda run: run.id)
    inbox = sorted(store.list_inbox(answered=True, limit=10_000), key=lambda item: item.id)
    return {
        "runs": {run.id: _run_state(store, run) for run in runs},
        "keys": {
            key: [row.state, row.generation, row.body.hex()] for key, row in store.read_keys(keys).items()
        },
        "inbox": {item.id: [item.state, item.answer.decode(), item.by] for item in inbox},
    }


def _run_state(store: AnyStore, run: RunRow) -> list[Any]:
    journal = store.load_journal(run.id, since=0)
    store.get_blobs({digest for record in journal.records for digest in record.blobs})
    records = [
        [record.seq, record.kind, record.step, _short(record.body), [digest.hex() for digest in record.blobs]]
        for record in journal.records
    ]
    return [run.state, run.turn, run.length, records]


def _short(body: bytes) -> str:
    return f"{len(body)}:{blake2b(body, digest_size=8).hexdigest()}"


def check(home: str, *, ended: dict[str, int] | None = None) -> list[str]:
    """Judge the store of `home` by its ledger; a task of the fork server. Returns the violations.

    With `ended`, a seed and a number of runs, the last line returned is the outcome, to be compared.
    """
    entries = list(read(Path(home) / "ledger"))
    if ended is None:
        return judged(Path(home), entries)
    store = open_at(Path(home))
    try:
        told = final_state(store, all_keys(ended["seed"], ended["runs"]))
        return [*Judge(store, entries).judge(), msgspec.json.encode(told).decode()]
    finally:
        store.close()


def judged(home: Path, entries: list[Entry]) -> list[str]:
    """Open the store of a directory, judge it by a ledger's entries, and return the violations."""
    if not entries:
        return []
    try:
        store = open_at(home)
    except NineLivesError as error:
        return [f"the store does not open: {type(error).__name__}: {error}"]
    try:
        return Judge(store, entries).judge()
    finally:
        store.close()
