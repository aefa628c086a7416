"""Every store answers as the memory store does, over long random sequences of calls.

A failure names its seed: `NINELIVES_SEED=<seed> pytest tests/contract/test_differential.py` plays it again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from msgspec import Struct
from msgspec.structs import astuple, replace

from ninelives.core.errors import NineLivesError
from ninelives.core.governance.accounts import AccountOp, Requirement
from ninelives.core.model.commit import Change, Commit, Outcome, Verdict
from ninelives.core.model.key import Key, KeyOp, KeyState
from ninelives.core.model.run import Claims, Control, RunQuery, RunRow, State
from ninelives.core.model.transitions import TABLE, Event
from tests.clocks import SteppingClock
from tests.contract.benches import STORES, make_bench
from tests.contract.makers import AnyStore
from tests.contract.operations import KEYS, Chooser, Operation

SEQUENCES, LENGTH = 300, 64
FEWER = {"postgresql": 100, "redis": 60}
"""Stores for which a call is a trip to a server: every store plays these, the others go on from there."""


def plain(answer: object) -> object:
    """Return an answer in a form that compares by value: errors by their class and words."""
    if isinstance(answer, NineLivesError):
        return type(answer).__name__, answer.what, answer.run
    if isinstance(answer, Verdict):
        return answer.run, answer.outcome, plain(answer.error), answer.key, answer.account
    if isinstance(answer, list):
        return [plain(one) for one in answer]
    return answer


def ask(store: AnyStore, operation: Operation) -> object:
    """Make the call; an error of ours is an answer too, any other is a failure."""
    try:
        return plain(operation.call(store))
    except NineLivesError as error:
        return "raised", plain(error)


def runs_of(store: AnyStore) -> dict[str, RunRow]:
    return {run.id: run for run in store.list_runs(RunQuery(limit=1000))}


def sent_again(run: str, name: str, body: bytes, given: str) -> Operation:
    """Return the call that tells what became of a signal."""
    return Operation("send_signal", run, lambda store: store.send_signal(run, name, body, id=given))


def everything(store: AnyStore, chooser: Chooser) -> dict[str, object]:
    """Return all that a store will tell."""
    runs = runs_of(store)
    return {
        "runs": runs,
        "journals": [store.load_journal(run, since=0) for run in runs],
        "capsules": [store.export_run(run) for run in runs],
        "turns": [store.load_journal(run) for run in runs],
        "turns at once": plain(store.load_journals([*runs, "nobody"])),
        "items": store.list_inbox(answered=True, limit=1000),
        "keys": store.read_keys(KEYS),
        "sessions": store.list_sessions(),
        "log": store.read_log(limit=1000),
        "stats": replace(store.stats(), disk_bytes=0),
        "gauges": replace(store.gauges(), used={}),
        "faults": [fault for fault in store.verify() if not fault.duplicate],
        "duplicates": [fault for fault in store.verify() if fault.duplicate],
        "documents": store.read_documents(),
        "signals": [ask(store, sent_again(*signal)) for signal in dict.fromkeys(chooser.signals)],
    }


class Coverage:
    """What happened at least once, over all sequences."""

    def __init__(self) -> None:
        self.seen: set[object] = set()

    def note(self, operation: Operation, answer: object) -> None:
        """Note an operation with its answer."""
        if isinstance(answer, tuple) and answer and answer[0] == "raised":
            self.seen.add((operation.name, answer[1][0]))
            return
        self.seen.add(operation.name)
        if operation.name == "commit":
            self._note_verdicts(operation.what, answer)
        elif operation.name == "control_run":
            self.seen.add(operation.what[1])  # type: ignore[index]
        elif operation.name == "create_runs":
            self.seen.update((operation.name, one[0]) for one in answer if isinstance(one, tuple))  # type: ignore[attr-defined]
        elif operation.name == "import_runs":
            self.seen.update(("imported", one.is_new) for one in answer)  # type: ignore[attr-defined]
        elif isinstance(answer, Claims) and answer.runs:
            self.seen.add("claimed")
        elif isinstance(answer, Struct) and operation.name == "prune":
            self.seen.update(("prune", n) for n, count in enumerate(astuple(answer)) if count)

    def _note_verdicts(self, batch: object, verdicts: object) -> None:
        assert isinstance(batch, list)
        assert isinstance(verdicts, list)
        for commit, (_, outcome, error, _, _) in zip(batch, verdicts, strict=True):
            assert isinstance(commit, Commit)
            self.seen.add(outcome)
            if error is not None:
                self.seen.add(("verdict", error[0]))
            if outcome is Outcome.COMMITTED:
                self.seen.update(type(op) for op in (*commit.keys, *commit.requires, *commit.accounts))
                self.seen.add(type(commit.change))
                parts = {"records": commit.records, "opens": commit.opens, "closes": commit.closes}
                self.seen.update(name for name, part in (parts | {"takes": commit.takes}).items() if part)

    def note_states(self, operation: str, before: dict[str, RunRow], after: dict[str, RunRow]) -> None:
        """Note which runs changed their state, and by which operation."""
        for name in before.keys() & after.keys():
            if before[name].state is not after[name].state:
                self.seen.add((operation, before[name].state, after[name].state))

    def note_keys(self, before: dict[str, Key], after: dict[str, Key]) -> None:
        """Note which keys changed their state."""
        for name, key in after.items():
            known = before.get(name)
            if known is None or known.state is not key.state:
                self.seen.add((known.state if known else None, key.state))


CALLS = {
    Event.CLAIM: ["claim_runs"],
    Event.PARK: ["commit"],
    Event.RELEASE: ["end_sessions"],
    Event.COMPLETE: ["commit"],
    Event.FAIL: ["commit"],
    Event.ESCALATE: ["commit"],
    Event.RESOLVE: ["answer_item", "control_run"],
    Event.RETRY: ["control_run"],
    Event.DEPART: ["depart_runs"],
    Event.RETURN: ["settle_move"],
}
OPERATIONS = {
    "create_runs", "read_run", "list_runs", "register_session", "renew_session", "end_sessions",
    "list_sessions", "claim_runs", "load_journal", "commit", "read_keys", "send_signal", "control_run",
    "list_inbox", "answer_item",
    "export_run", "import_runs", "depart_runs", "settle_move",
    "put_blobs", "get_blobs", "salvage", "wait_for_work", "now_ms", "migrate", "stats", "gauges", "verify",
    "prune",
    "read_counters", "count_runs",
}  # fmt: skip
ERRORS = {
    ("create_runs", "BadName"), ("create_runs", "IdConflict"), ("create_runs", "NotSerializable"),
    ("create_runs", "UsageError"), ("register_session", "IdConflict"), ("register_session", "BadName"),
    ("register_session", "UsageError"), ("renew_session", "LeaseLost"), ("claim_runs", "LeaseLost"),
    ("salvage", "LeaseLost"),
    ("load_journal", "UnknownRun"), ("commit", "UsageError"), ("verdict", "BadRecord"),
    ("verdict", "BadName"), ("verdict", "Corrupt"),
    ("verdict", "KeyConflict"), ("verdict", "UnknownRun"), ("send_signal", "UnknownRun"),
    ("send_signal", "RunFinished"), ("send_signal", "IdConflict"), ("send_signal", "BadName"),
    ("send_signal", "NotSerializable"), ("control_run", "UnknownRun"), ("control_run", "RunFinished"),
    ("depart_runs", "UsageError"), ("depart_runs", "RunFinished"), ("depart_runs", "RunMoved"),
    ("settle_move", "UsageError"), ("send_signal", "RunMoved"), ("control_run", "RunMoved"),
    ("export_run", "UnknownRun"), ("import_runs", "BadRecord"), ("import_runs", "Corrupt"),
    ("import_runs", "KeyConflict"), ("import_runs", "IdConflict"),
    ("answer_item", "StaleAnswer"), ("answer_item", "BadName"), ("get_blobs", "Corrupt"),
}  # fmt: skip
KEY_CHANGES = {
    (None, KeyState.RESERVED),
    (KeyState.RESERVED, KeyState.SETTLED),
    (KeyState.RESERVED, KeyState.FREE),
    (KeyState.RESERVED, KeyState.IN_DOUBT),
    (KeyState.IN_DOUBT, KeyState.SETTLED),
    (KeyState.IN_DOUBT, KeyState.FREE),
    (KeyState.FREE, KeyState.RESERVED),
    (KeyState.IN_DOUBT, KeyState.ORPHANED),
    (KeyState.RESERVED, KeyState.ORPHANED),
    (KeyState.ORPHANED, KeyState.IN_DOUBT),
    (KeyState.SETTLED, KeyState.RESERVED),
    (KeyState.SETTLED, KeyState.PRUNED),
    (KeyState.RESERVED, KeyState.MOVED),
}


def required() -> set[object]:
    """Return all that must have happened, or the sequences prove little."""
    needed: set[object] = {
        "claimed",
        ("imported", True),
        ("imported", False),
        "records",
        "opens",
        "closes",
        "takes",
        *OPERATIONS,
        *ERRORS,
        *KEY_CHANGES,
    }
    needed |= {*Outcome, *Control, *KeyOp.__args__, *AccountOp.__args__, Requirement}
    needed |= {("prune", n) for n in range(5)}
    needed |= {*Change.__args__, type(None)}
    for (source, event), target in TABLE.items():
        if event is Event.CANCEL:
            needed.add(("control_run" if source is State.PENDING else "commit", source, target))
        else:
            needed |= {(call, source, target) for call in CALLS[event]}
    return needed


def play(seed: int, kind: str, directory: Path, coverage: Coverage) -> None:
    """Play one sequence on the oracle and on a store of a kind; every answer and all that is left agree."""
    clock = SteppingClock()
    oracle, other = make_bench("memory", clock, directory), make_bench(kind, clock, directory)
    chooser = Chooser(Random(seed), clock, oracle.store)
    trace: list[str] = []
    try:
        for _ in range(LENGTH):
            operation = chooser.next()
            trace.append(f"{operation.name} {operation.what!r}")
            runs, keys = runs_of(oracle.store), oracle.store.read_keys(KEYS)
            expected, answer = ask(oracle.store, operation), ask(other.store, operation)
            assert answer == expected, f"{operation.name} {operation.what!r}"
            coverage.note(operation, expected)
            coverage.note_states(operation.name, runs, runs_of(oracle.store))
            coverage.note_keys(keys, oracle.store.read_keys(KEYS))
        expected_end, end = everything(oracle.store, chooser), everything(other.store, chooser)
        for part, value in expected_end.items():
            assert end[part] == value, part
            # Records at random are no engine's: only what the stores themselves did is judged.
            assert end["faults"] == []
    except BaseException as error:
        error.add_note(
            f"NINELIVES_SEED={seed} plays this again; the last calls were:\n" + "\n".join(trace[-8:])
        )
        raise
    finally:
        other.close()


@pytest.fixture
def quick_directory(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory in memory where there is one: this is about answers, not about disks."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=shared, prefix="ninelives-") as name:
        yield Path(name)


@pytest.mark.parametrize("kind", STORES)
def test_every_store_answers_as_the_memory_store_does(kind: str, quick_directory: Path) -> None:
    coverage = Coverage()
    given = os.environ.get("NINELIVES_SEED")
    sequences = FEWER.get(kind, SEQUENCES)
    seeds = [int(given)] if given else range(sequences)
    for seed in seeds:
        directory = quick_directory / str(seed)
        directory.mkdir()
        play(seed, kind, directory, coverage)
    if not given and sequences == SEQUENCES:  # the same seeds play the same calls on every store
        missing = required() - coverage.seen
        assert not missing, f"never happened: {sorted(map(str, missing))}"
