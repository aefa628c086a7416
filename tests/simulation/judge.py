"""The judge: believes the ledger, reads the store through its protocol, and knows nothing of workers.

I1 no acknowledged run is lost. I2 no body begins once its step's outcome is recorded, none in a process that
does not own the run, and no code is told of what is not recorded. I3 what must not be repeated takes effect
once at most, and no start follows one that may still take effect. I4 what is in doubt is settled by asking
the world or a person. I5 the store verifies. I6 (seen by the clients) all runs end. I7 they end as they
should: see `outcomes`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ninelives.core.ids import parse_step_id
from ninelives.core.model.run import Kind, State
from tests.simulation import outcomes
from tests.simulation.ledger import Event, Fact
from tests.simulation.outcomes import Started
from tests.simulation.store import Archive
from tests.simulation.world import World

_OUTCOMES = frozenset({Kind.RESULT, Kind.FAILURE, Kind.WITHDRAWN})
_Place = tuple[str, int, str]


def judge(archive: Archive, world: World, events: Sequence[Event], started: Sequence[Started]) -> list[str]:
    """Return all that is wrong."""
    return [
        *_lost(archive, events),
        *_repeated(events),
        *_unowned(events),
        *_stale(events),
        *_told_early(events),
        *_unguarded(events),
        *_keys(events),
        *_effects(events),
        *_unannounced(events),
        *_settled(archive, events),
        *(f"I5: {fault.run}: {fault.what}" for fault in archive.verify()),
        *outcomes.wrong(archive, world, events, started),
    ]


def _place(event: Event) -> _Place:
    return event.run, event.turn, event.step


def _lost(archive: Archive, events: Sequence[Event]) -> Iterator[str]:
    for event in events:
        if event.fact is Fact.STARTED and archive.read_run(event.run) is None:
            yield f"I1: {event.run} is lost"


def _repeated(events: Sequence[Event]) -> Iterator[str]:
    """I2: once a step's outcome is recorded, its body does not begin again."""
    recorded: dict[_Place, str] = {}
    for event in events:
        if event.fact is Fact.RECORDED and event.name in _OUTCOMES:
            if event.name in (Kind.RESULT, Kind.FAILURE) and recorded.get(_place(event)) == Kind.RESULT:
                yield f"I2: {event.step} of {event.run} has two results"
            recorded[_place(event)] = event.name
        elif event.fact is Fact.RECORDED and event.name == Kind.SUPERSEDED:
            failed = (one for one, kind in recorded.items() if one[0] == event.run and kind != Kind.RESULT)
            for one in list(failed):
                del recorded[one]
        elif event.fact is Fact.BEGIN and _place(event) in recorded:
            yield f"I2: {event.step} of {event.run} began in {event.process} after its outcome was recorded"


def _unowned(events: Sequence[Event]) -> Iterator[str]:
    """No body begins in a process that the run does not belong to, and nothing is recorded by one."""
    owners: dict[str, str] = {}
    for event in events:
        if event.fact is Fact.CLAIMED:
            owners[event.run] = event.process
        elif event.fact is Fact.LEFT:
            owners.pop(event.run, None)
        elif event.fact is Fact.BEGIN and owners.get(event.run) != event.process:
            owner = owners.get(event.run)
            yield f"ownership: {event.step} of {event.run} began in {event.process}; it belongs to {owner}"
        elif event.fact is Fact.RECORDED and owners.get(event.run) != event.process:
            owner = owners.get(event.run)
            yield f"ownership: {event.process} recorded {event.name} of {event.run}; it belongs to {owner}"


def _stale(events: Sequence[Event]) -> Iterator[str]:
    """Nothing is recorded by an owner after the next one's claim."""
    epochs: dict[str, int] = {}
    for event in events:
        if event.fact is Fact.CLAIMED:
            if event.epoch <= epochs.get(event.run, 0):
                yield f"ownership: epoch {event.epoch} of {event.run} was given twice"
            epochs[event.run] = event.epoch
        elif event.fact is Fact.RECORDED and event.epoch < epochs.get(event.run, 0):
            what = f"epoch {event.epoch} of {event.run} recorded {event.name}"
            yield f"ownership: {what} after its successor's claim"


def _told_early(events: Sequence[Event]) -> Iterator[str]:
    """A strict run's code learns of nothing that is not durable, and always of the same."""
    recorded, values = set[_Place](), dict[_Place, int]()
    for event in events:
        if event.fact is Fact.RECORDED and event.name in _OUTCOMES:
            recorded.add(_place(event))
        elif event.fact is Fact.TOLD and _place(event) not in recorded and _is_strict(event):
            yield f"loss bound: {event.run} was told of {event.step} before it was durable"
        if event.fact is Fact.TOLD and _is_strict(event):
            known = values.setdefault(_place(event), event.value)
            if known != event.value:
                yield f"same value: {event.run} was told {known} by {event.step}, and then {event.value}"


def _is_strict(event: Event) -> bool:
    reads = ("sim.decide", "sim.look")
    return not event.run.startswith("piped-") or parse_step_id(event.step).name not in reads


def _unguarded(events: Sequence[Event]) -> Iterator[str]:
    """The world sees nothing of a pipelined run that rests on what may still be lost."""
    recorded: set[_Place] = set()
    told: defaultdict[tuple[str, str], set[_Place]] = defaultdict(set)
    for event in events:
        life = event.run, event.process
        if event.fact is Fact.RECORDED and event.name in _OUTCOMES:
            recorded.add(_place(event))
        elif event.fact is Fact.CLAIMED:
            told[life].clear()
        elif event.fact is Fact.TOLD:
            told[life].add(_place(event))
        elif event.fact is Fact.BEGIN and event.name not in ("sim.decide", "sim.look"):
            for _, _, step in sorted(told[life] - recorded):
                yield f"loss bound: {event.step} of {event.run} began before {step} was durable"


def _keys(events: Sequence[Event]) -> Iterator[str]:
    """All attempts at a step have one key, and a key that may be tried again has one meaning."""
    keys: dict[_Place, str] = {}
    values: dict[str, int] = {}
    for event in events:
        if event.fact is not Fact.BEGIN or event.identity != event.key:
            continue  # a business key grows with its generation
        if keys.setdefault(_place(event), event.key) != event.key:
            yield f"key: {event.step} of {event.run} had {keys[_place(event)]} and has {event.key}"
        if event.name == "sim.write" and values.setdefault(event.key, event.value) != event.value:
            yield f"key: {event.key} stood for {values[event.key]} and stands for {event.value}"


def _effects(events: Sequence[Event]) -> Iterator[str]:
    """I3: what must not be repeated takes effect once; nothing starts beside a start that is not voided."""
    begun: dict[str, Event] = {}
    landed: dict[str, Event] = {}
    for event in events:
        name = event.identity
        if event.fact is Fact.RECORDED and event.name == Kind.VOIDED:
            begun.pop(name, None)
        if not event.start:
            continue
        what = f"I3: start {event.start} of {event.step} of {event.run}"
        if event.fact is Fact.BEGIN:
            if name in begun:
                yield f"{what} began, and start {begun[name].start} of {begun[name].run} was not voided"
            begun[name] = event
        elif event.fact is Fact.EFFECT:
            if name in landed:
                yield f"{what} took effect after that of {landed[name].run} under {name}"
            elif name not in begun:
                yield f"{what} landed after it was voided"
            landed[name] = event


def _unannounced(events: Sequence[Event]) -> Iterator[str]:
    """I3: an intent is durable before what must not be repeated begins, and each start has its own."""
    intents: defaultdict[_Place, int] = defaultdict(int)
    for event in events:
        if event.fact is Fact.RECORDED and event.name == Kind.INTENT:
            intents[_place(event)] += 1
        elif event.fact is Fact.BEGIN and event.start:
            intents[_place(event)] -= 1
            if intents[_place(event)] < 0:
                yield f"I3: {event.step} of {event.run} began without a durable intent"


def _settled(archive: Archive, events: Sequence[Event]) -> Iterator[str]:
    """I4: a doubt ends by what the world or a person said; a start follows only one that was voided."""
    standing: dict[_Place, str] = {}
    asked: set[tuple[str, str]] = set()
    for event in events:
        place = _place(event)
        if event.fact in (Fact.PROBE, Fact.ANSWERED, Fact.DONE):
            asked.add((event.run, event.step))
        elif event.fact is not Fact.RECORDED or event.name not in _PROTECTED:
            continue
        elif event.name == Kind.INTENT:
            if standing.get(place) == Kind.DOUBT:
                yield f"I4: {event.step} of {event.run} starts while it is in doubt"
            asked.discard((event.run, event.step))
            standing[place] = event.name
        elif event.name in (Kind.DOUBT, Kind.VOIDED):
            if event.name == Kind.VOIDED and standing.get(place) == Kind.DOUBT:
                yield from _unasked(event, asked)
            standing[place] = event.name
        elif place in standing:
            if event.name == Kind.RESULT and standing[place] == Kind.DOUBT:
                yield from _unasked(event, asked)
            del standing[place]
    for (run, _, step), kind in standing.items():
        row = archive.read_run(run)
        if kind == Kind.DOUBT and row is not None and row.state is State.COMPLETED:
            yield f"I4: {step} of {run} stayed in doubt"


_PROTECTED = frozenset({Kind.INTENT, Kind.DOUBT, Kind.VOIDED, Kind.RESULT, Kind.FAILURE})


def _unasked(event: Event, asked: set[tuple[str, str]]) -> Iterator[str]:
    if (event.run, event.step) not in asked:
        yield f"I4: the doubt of {event.step} of {event.run} was settled, and nobody had been asked"
