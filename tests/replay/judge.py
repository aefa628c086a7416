"""The judge: holds a finished run against the ledger and against runs that never crashed.

I1 the run is there and has ended; I2 no body started after its step's outcome was durable; each step has one
outcome, which some attempt produced, and all attempts had one key and the same arguments (pipelined:
unless they were decisions, reads or draws that rest on a lost decision); whatever the world saw is what the
final journal asks for; I7 the result is what the journal's outcomes come to when told in order, by the oracle
(which shares nothing with the engine) and by the engine itself without executing any body.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ninelives.core.ids import parse_step_id, positional_key
from ninelives.core.journal import chain
from ninelives.core.model.commit import Commit, Outcome
from ninelives.core.model.run import Journal, Kind, NewRun, Record, State
from ninelives.core.model.session import Cause, NewSession
from ninelives.core.values.exceptions import encode_error
from ninelives.store import Store
from ninelives.stores.clock import SystemClock
from ninelives.stores.memory import MemoryStore
from tests.replay import agents
from tests.replay.lives import OUTCOMES, live
from tests.replay.oracle import Oracle
from tests.replay.programs import Program
from tests.replay.world import Event, World

BODIES = frozenset({"action", "read", "decision", "plain", "nested", "plain_decision"})


def judge(store: Store, program: Program, run: str, events: Sequence[Event]) -> list[str]:
    """Return all that is wrong with a run that should have ended."""
    row = store.read_run(run)
    if row is None:
        return ["I1: the run is lost"]
    if row.state not in (State.COMPLETED, State.FAILED):
        items = [item.body.decode() for item in store.list_inbox(run=run)]
        return [f"I1: the run is {row.state}, waits for {row.waits!r}: {items}"]
    journal = store.load_journal(run, since=0)
    turns = list(_turns(journal))
    violations = [
        *_recorded_once(turns),
        *_executed_once(events),
        *_caught_up_first(events),
        *_attempts(program, events),
        *_produced(run, turns, events),
        *_settled(run, turns, events),
    ]
    for number, records in enumerate(turns):
        violations += _retold(program, run, number, records, events)
        violations += _replayed(program, run, journal, number, records)
    return violations


def _turns(journal: Journal) -> Iterable[tuple[Record, ...]]:
    """Yield each turn's records: what starts it, and, last, what ends it."""
    turn: list[Record] = []
    for record in journal.records:
        turn.append(record)
        if record.kind in (Kind.TURN, Kind.END):
            yield tuple(turn)
            turn = [record]


def _recorded_once(turns: Sequence[tuple[Record, ...]]) -> Iterable[str]:
    for number, records in enumerate(turns):
        told = [record for record in records if record.kind in OUTCOMES]
        withdrawn = {record.step: record.seq for record in reversed(told) if record.kind is Kind.WITHDRAWN}
        # One that is withdrawn between its record and its telling has both, in this order.
        counts = Counter(record.step for record in told if record.kind is not Kind.WITHDRAWN)
        counts.update(record.step for record in told if record.seq > withdrawn.get(record.step, record.seq))
        for step, count in counts.items():
            if count > 1:
                yield f"turn {number}: {step} has {count} outcomes"


def _executed_once(events: Sequence[Event]) -> Iterable[str]:
    durable: dict[str, Event] = {}
    for event in events:
        if event.fact == "durable":
            durable.setdefault(event.key, event)
        elif event.fact == "start" and event.key in durable:
            known = durable[event.key]
            if event.role == "plain" and known.value == "withdrawn" and known.life == event.life:
                continue  # a thread that was let begin just before cannot be held back
            yield f"I2: {event.label} was executed in life {event.life} after its outcome was durable"


def _caught_up_first(events: Sequence[Event]) -> Iterable[str]:
    """No body starts in a life while an outcome that was durable before that life is still to be told."""
    labels = {event.key: (event.turn, event.label) for event in events if event.fact == "start"}
    before: set[tuple[int, str]] = set()
    durable: set[tuple[int, str]] = set()
    started = ""
    for event in events:
        if event.fact == "life":
            before, started = set(durable), ""
        elif event.fact == "durable" and event.value != "withdrawn" and event.key in labels:
            durable.add(labels[event.key])
        elif event.fact == "start":
            started = started or event.label
        elif event.fact == "told" and started and (event.turn, event.label) in before:
            yield f"in life {event.life} the body of {started} began before {event.label} was told"
            return


def _attempts(program: Program, events: Sequence[Event]) -> Iterable[str]:
    by_key: dict[str, set[tuple[int, str, str]]] = defaultdict(set)
    keys: dict[tuple[int, str], set[str]] = defaultdict(set)
    drawn: dict[tuple[int, str], set[str]] = defaultdict(set)
    for event in events:
        if event.fact == "start" and not _may_be_lost(program, event):
            by_key[event.key].add((event.turn, event.label, event.x))
            keys[event.turn, event.label].add(event.key)
    for event in _kept_draws(program, events):
        drawn[event.turn, event.label].add(event.value)
    yield from (f"one key, several calls: {key} {calls}" for key, calls in by_key.items() if len(calls) > 1)
    yield from (f"one call, several keys: {call} {found}" for call, found in keys.items() if len(found) > 1)
    yield from (f"drawn differently: {call} {found}" for call, found in drawn.items() if len(found) > 1)


def _may_be_lost(program: Program, event: Event) -> bool:
    return program.is_pipelined and event.role in ("decision", "read")


def _kept_draws(program: Program, events: Sequence[Event]) -> Iterable[Event]:
    """Yield what was drawn, but not what rests on a decision that was told early and lost with its life.

    What was drawn before something was asked for that the world has seen is kept, and all of the last life.
    """
    draws: list[Event] = []
    asked: dict[tuple[int, str], int] = {}
    for event in events:
        if event.fact == "life":
            draws, asked = [], {}
        elif event.fact == "asked":
            asked[event.turn, event.label] = len(draws)
        elif event.fact == "start" and not _may_be_lost(program, event):
            yield from draws[: asked.get((event.turn, event.label), 0)]
        elif event.fact == "drawn" and event.role in ("uuid", "random"):
            draws.append(event)
            if not program.is_pipelined:
                yield event
    yield from draws


def _produced(run: str, turns: Sequence[tuple[Record, ...]], events: Sequence[Event]) -> Iterable[str]:
    """Every recorded value came out of a body of that step."""
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    for event in events:
        if event.fact in ("done", "failed"):
            values[event.key, event.fact].add(event.value)
    for number, records in enumerate(turns):
        for record in records:
            if record.kind not in (Kind.RESULT, Kind.FAILURE):
                continue
            place = parse_step_id(record.step)
            if place.name not in BODIES:
                continue
            fact = "done" if record.kind is Kind.RESULT else "failed"
            produced = values[positional_key(run, number, *place), fact]
            if not any(value in record.body.decode() for value in produced):
                yield f"turn {number}: {record.step} is recorded as {record.body!r}; bodies gave {produced}"


def _settled(run: str, turns: Sequence[tuple[Record, ...]], events: Sequence[Event]) -> Iterable[str]:
    """Whatever began in the life that ended the run has an outcome: a value, an error, or withdrawn."""
    outcomes = {
        positional_key(run, number, *parse_step_id(record.step))
        for number, records in enumerate(turns)
        for record in records
        if record.kind in OUTCOMES
    }
    last = max(event.life for event in events)
    started = {event.key: event.label for event in events if event.fact == "start" and event.life == last}
    yield from (f"{label} began and has no outcome" for key, label in started.items() if key not in outcomes)


def _retold(
    program: Program, run: str, number: int, records: tuple[Record, ...], events: Sequence[Event]
) -> Iterable[str]:
    """Tell the turn's outcomes in order: it comes to the same end, and asks for all that the world saw."""
    drawn = {one.label: one.value for one in events if one.fact == "drawn" and one.turn == number}
    oracle = Oracle(program, records, drawn)
    start = msgspec.json.decode(records[0].body)["p"]
    end = msgspec.json.decode(records[-1].body)
    try:
        acc: str = oracle.tell(start["turn"], start["acc"])
    except AssertionError as wrong:
        yield f"I7: turn {number}: {wrong}"
        return
    except Exception as error:
        known = end.get("e")
        told = msgspec.json.decode(encode_error(error))
        if records[-1].kind is not Kind.END or known is None or _said(known) != _said(told):
            yield f"I7: turn {number} fails with {told} when told in order; it ended with {end}"
    else:
        known = end.get("v") if records[-1].kind is Kind.END else end["p"]["acc"]
        if known != acc:
            yield f"I7: turn {number} comes to {acc} when told in order; it ended with {end}"
    for event in events:
        if event.fact == "start" and event.turn == number:
            may_rest_on_lost = program.is_pipelined and event.role in ("decision", "read")
            asked = oracle.asked.get(event.label)
            if not may_rest_on_lost and (asked is None or asked[0] != event.x):
                yield (
                    f"the world saw {event.role} {event.label}({event.x}) in life {event.life};"
                    f" the journal asks for {asked}"
                )


def _said(failure: dict[str, Any]) -> tuple[str, str]:
    return failure["name"], failure["message"]


def _replayed(
    program: Program, run: str, journal: Journal, number: int, records: tuple[Record, ...]
) -> Iterable[str]:
    """Let the engine replay the finished turn: it executes nothing and ends as it did."""
    upto = records[-1].seq
    store = _copy(journal, [record for record in journal.records if record.seq < upto])
    world = World(program.seed)
    watched = _Watched(store)
    agents.WORLDS[run] = world
    start = msgspec.json.decode(journal.records[0].body)["p"]
    live(watched, world, program.agent, (start["seed"], start["turn"], start["acc"]), run, None)
    recorded = {
        positional_key(run, number, *parse_step_id(one.step)) for one in records if one.kind in OUTCOMES
    }
    executed = [event.label for event in world.events if event.fact == "start" and event.key in recorded]
    if executed:
        yield f"I7: turn {number}: replay of the finished journal executes {executed}"
    # A step that was cancelled before its body began has no record, and may begin in another life.
    ends = [(one.kind, one.body) for one in watched.written if one.kind in (Kind.TURN, Kind.END)]
    expected = (records[-1].kind, records[-1].body)
    if ends[:1] != [expected]:
        row = store.read_run(run)
        yield f"I7: turn {number}: replay of the finished journal ends with {ends}, not {expected}: {row}"


class _Watched:
    """A store that remembers what is committed, and takes no commit after the first one."""

    def __init__(self, under: MemoryStore) -> None:
        self._under = under
        self.written: list[Record] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._under, name)

    def commit(self, batch: Sequence[Commit]) -> list[Any]:
        """Commit and remember."""
        verdicts = self._under.commit(batch)
        for commit, verdict in zip(batch, verdicts, strict=True):
            if verdict.outcome is Outcome.COMMITTED:
                self.written += commit.records
        return verdicts


def _copy(journal: Journal, records: Sequence[Record]) -> MemoryStore:
    """Make a store in which a run has come as far as these records."""
    store, row = MemoryStore(SystemClock()), journal.run
    first = records[0]
    store.create_runs(
        [NewRun(id=row.id, agent=row.agent, fingerprint=row.fingerprint, body=first.body, queue=row.queue)]
    )
    store.register_session(NewSession(id="copy", host="here", pid=1))
    (claimed,) = store.claim_runs("copy", 1, {row.agent: 1}).runs
    drafts = [(one.kind, one.step, one.at_ms, one.body, one.blobs) for one in records[1:]]
    for draft in drafts:
        sealed = chain.seal(claimed.length, claimed.head, [draft], claimed.epoch)
        commit = Commit(
            run=row.id, epoch=claimed.epoch, length=claimed.length, head=claimed.head, records=sealed
        )
        (verdict,) = store.commit([commit])
        assert verdict.outcome is Outcome.COMMITTED, verdict
        claimed = replace(claimed, length=commit.new_length, head=commit.new_head)
    store.end_sessions(["copy"], Cause.STOPPED)
    return store
