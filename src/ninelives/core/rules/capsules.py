"""The rules for capsules: what a store puts into one, what it accepts, and what an imported run becomes.

A capsule comes from another store, perhaps in a file that anyone may have written. So everything in it is
checked before anything of it is stored: names, sizes and numbers, and the chain of its records.

A copy of an unfinished run is held back, as after a restore: it is paused, and each start of a non-resumable
action without an outcome waits for a person. The original may still run, and do the rest of the work. A run
that moves must never be able to run in both stores: see below.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import BadRecord, Corrupt, IdConflict, KeyConflict, NineLivesError, UsageError
from ninelives.core.journal import chain
from ninelives.core.model.capsule import Capsule, Move
from ninelives.core.model.commit import Verdict
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.key import Key, KeyState
from ninelives.core.model.run import INLINE_BYTES, Journal, Kind, Record, RunRow, State
from ninelives.core.model.transitions import Event, advance
from ninelives.core.rules import inbox_rules, restore, run_rules
from ninelives.core.rules.validation import INT_LIMIT, fault_in_name, is_text
from ninelives.core.values.blobs import DIGEST_BYTES

WHY = "the run was imported as a copy: what the original has done since is not recorded here"
MOST_SIGNALS = 1_000_000
"""The most signals that a run in a capsule may ever have been sent."""
_MOST_FINGERPRINT = 64
_OPEN = (KeyState.RESERVED, KeyState.IN_DOUBT, KeyState.ORPHANED)


# Export ------------------------------------------------------------------------------------------


def portable(run: RunRow) -> RunRow:
    """Return a run's row without what belongs to its store; a running run as if its worker had left it."""
    if run.state is State.RUNNING:
        left = advance(run.state, Event.RELEASE, run=run.id)
        run = replace(run, state=left, due_ms=run.changed_ms, waits="")
    return replace(run, number=0, session=None, is_alone=False, left_by=None)


def capsule_of(journal: Journal, signals: Iterable[Signal], last_signal: int, keys: Iterable[Key]) -> Capsule:
    """Return the capsule of a run, given its whole journal, all its signals, and the keys that name it.

    It is the same whichever store it comes from: some keep signals that were taken, others do not.
    """
    kept = (one for one in signals if one.taken is None or one.id)
    return Capsule(
        run=portable(journal.run),
        records=journal.records,
        signals=tuple(sorted(kept, key=lambda one: one.number)),
        last_signal=last_signal,
        items=journal.items,
        keys=tuple(sorted((key for key in keys if key.run == journal.run.id), key=lambda key: key.key)),
    )


# Validation --------------------------------------------------------------------------------------


def fault_in_capsule(capsule: Capsule) -> NineLivesError | None:
    """Return the first thing that is wrong with a capsule; None if a store may take it."""
    run = capsule.run
    fault = next((fault for name, what in _names(capsule) if (fault := fault_in_name(name, what))), None)
    if fault is not None:
        return fault
    for is_right, what in _conditions(capsule):
        if not is_right:
            return BadRecord(
                f"the capsule cannot be taken: {what}",
                run=run.id,
                remedy="It is damaged, or it was not written by Nine Lives. Export the run again",
            )
    try:
        chain.verify(run.id, run.base_check, run.base, capsule.records, length=run.length, head=run.head)
    except Corrupt as error:
        return error
    return None


def _names(capsule: Capsule) -> Iterator[tuple[str, str]]:
    run = capsule.run
    yield from ((run.id, "run id"), (run.agent, "agent name"), (run.queue, "queue"))
    for name, what in ((run.pin, "host"), (run.parent, "parent run id")):
        if name is not None:
            yield name, what
    for label, value in run.labels.items():
        yield label, "label"
        yield value, f"value of label {label!r}"
    yield from ((key.key, "key") for key in capsule.keys)
    yield from ((item.id, "item id") for item in capsule.items)
    for signal in capsule.signals:
        yield signal.name, "signal name"
        if signal.id:
            yield signal.id, "signal id"


def _conditions(capsule: Capsule) -> Iterator[tuple[bool, str]]:
    run = capsule.run
    counts = (
        *(run.epoch, run.length, run.base, run.turn, run.turn_seq, run.due_ms or 0, run.news, run.deaths),
        *(run.death_length, run.solo_deaths, run.created_ms, run.changed_ms, run.effect_length),
        *(run.steps, run.tokens_in, run.tokens_out),
    )
    yield all(_is_count(count) for count in counts) and abs(run.priority) < 2**31, "a number is out of range"
    yield run.base <= run.length and run.turn_seq <= run.length > 0, "its journal does not fit its row"
    yield len(run.fingerprint) <= _MOST_FINGERPRINT, "its fingerprint is too long"
    yield len(run.head) == len(run.base_check) == chain.CHECK_BYTES, "a check has the wrong size"
    # The chain of a whole journal starts from the run's id, whatever its row says.
    yield run.base > 0 or run.base_check == chain.start(run.id), "its journal is that of another run"
    texts = (run.waits, run.progress, run.last_error, run.retrying)
    yield all(is_text(text) and len(text) <= INLINE_BYTES for text in texts), "a text cannot be kept"
    yield _is_json(run.progress) and _is_json(run.retrying), "its progress is not JSON"
    yield (
        run.session is None and run.left_by is None and not run.is_alone and run.state is not State.RUNNING,
        "it has an owner",
    )
    yield from _in_records(capsule.records, run)
    yield from _in_signals(capsule)
    yield from _in_items(capsule.items, run)
    yield from _in_keys(capsule.keys, run)


def _in_records(records: Sequence[Record], run: RunRow) -> Iterator[tuple[bool, str]]:
    for record in records:
        is_kept = (
            is_text(record.step) and len(record.step) <= INLINE_BYTES and len(record.body) <= INLINE_BYTES
        )
        numbers = (record.seq, record.at_ms, record.epoch or 0, record.took_ms or 0)
        yield is_kept and all(map(_is_count, numbers)), f"record {record.seq} cannot be kept"
        yield _are_digests(record.blobs), f"record {record.seq} refers to a blob by a wrong name"
        yield (record.epoch or 0) <= run.epoch, f"record {record.seq} is of a later epoch than its run"
        yield (record.kind is Kind.CREATED) is (record.seq == 0), f"record {record.seq} is out of place"


def _in_signals(capsule: Capsule) -> Iterator[tuple[bool, str]]:
    numbers = [signal.number for signal in capsule.signals]
    ids = [signal.id for signal in capsule.signals if signal.id]
    yield 0 <= capsule.last_signal <= MOST_SIGNALS, "it was sent too many signals"
    taken = capsule.last_signal - sum(signal.taken is None for signal in capsule.signals)
    recorded = sum(record.kind is Kind.SIGNAL for record in capsule.records)
    # Salvage may have cut records of signals off.
    is_whole = not capsule.run.base and not any(one.kind is Kind.SALVAGED for one in capsule.records)
    yield taken <= recorded or not is_whole, "signals are missing"
    yield len({*numbers}) == len(numbers) and len({*ids}) == len(ids), "two signals are one"
    for signal in capsule.signals:
        yield 1 <= signal.number <= capsule.last_signal, f"signal {signal.number} was never sent"
        is_kept = len(signal.body) <= INLINE_BYTES and _is_count(signal.at_ms)
        yield is_kept and _is_count(signal.taken or 0), f"signal {signal.number} cannot be kept"
        yield signal.run == capsule.run.id, f"signal {signal.number} is another run's"
        yield signal.taken is None or bool(signal.id), f"signal {signal.number} was taken"


def _in_items(items: Sequence[Item], run: RunRow) -> Iterator[tuple[bool, str]]:
    yield len({item.id for item in items}) == len(items), "two inbox items are one"
    for item in items:
        yield item.run == run.id, f"the inbox item {item.id!r} is another run's"
        texts = (item.step, item.to, item.by)
        sizes = (*map(len, texts), len(item.body), len(item.answer), len(item.digest))
        numbers = (item.opened_ms, item.deadline_ms or 0, item.answered_ms or 0)
        is_kept = all(map(is_text, texts)) and all(size <= INLINE_BYTES for size in sizes)
        yield is_kept and all(map(_is_count, numbers)), f"the inbox item {item.id!r} cannot be kept"


def _in_keys(keys: Sequence[Key], run: RunRow) -> Iterator[tuple[bool, str]]:
    yield len({key.key for key in keys}) == len(keys), "two keys are one"
    for key in keys:
        yield key.run == run.id, f"the key {key.key!r} is another run's"
        is_kept = is_text(key.action) and len(key.action) <= INLINE_BYTES and len(key.body) <= INLINE_BYTES
        is_kept = is_kept and len(key.fingerprint) <= _MOST_FINGERPRINT and _are_digests(key.blobs)
        is_kept = is_kept and _is_count(key.generation) and _is_count(key.changed_ms)
        yield is_kept, f"the key {key.key!r} cannot be kept"
        # Nothing would ever settle or free it.
        is_stray = run.state.is_final and key.state in (KeyState.RESERVED, KeyState.IN_DOUBT)
        yield not is_stray, f"the key {key.key!r} is {key.state}, and the run has ended"


def fault_in_loose_key(key: Key) -> NineLivesError | None:
    """Return what is wrong with a key that comes without its run; None if a store may take it."""
    is_kept = (
        is_text(key.action) and len(key.action) <= INLINE_BYTES and len(key.fingerprint) <= _MOST_FINGERPRINT
    )
    is_kept = is_kept and is_text(key.run) and _is_count(key.generation) and _is_count(key.changed_ms)
    if not is_kept or key.body or key.blobs or key.state in (KeyState.RESERVED, KeyState.IN_DOUBT):
        return BadRecord(f"the key {key.key!r} ({key.state}) cannot be taken without its run")
    return fault_in_name(key.key, "key")


def _is_count(value: int) -> bool:
    return 0 <= value < INT_LIMIT


def _are_digests(digests: Iterable[bytes]) -> bool:
    return all(len(digest) == DIGEST_BYTES for digest in digests)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text or "0")
    except msgspec.DecodeError:
        return False
    return True


# Import ------------------------------------------------------------------------------------------


class Arriving(Struct, frozen=True):
    """A capsule as it will be stored, with the steps that were put in doubt."""

    capsule: Capsule
    doubts: tuple[str, ...] = ()


def arriving(capsule: Capsule, body_of: Callable[[Record], bytes], now_ms: int, *, hold: bool) -> Arriving:
    """Return what a store writes for a capsule: a new epoch, so that no earlier owner can commit.

    With `hold`, an unfinished run is paused, and its open starts are put in doubt; else it falls due at once:
    what it waits for may have happened elsewhere. `body_of` returns the body of a record from its blob.
    """
    if hold and capsule.run.state is State.MOVED:
        # The move may have been called back since, and the run have gone on: it waits if it returns here.
        return Arriving(replace(capsule, run=restore.fenced(capsule.run, now_ms)))
    if capsule.run.state.is_final or capsule.run.state is State.MOVED:
        return Arriving(replace(capsule, run=replace(capsule.run, epoch=capsule.run.epoch + 1)))
    if not hold:
        fenced = replace(capsule.run, epoch=capsule.run.epoch + 1)
        return Arriving(replace(capsule, run=run_rules.nudged(fenced, now_ms)))
    # Due when it is resumed: what it waits for may have happened elsewhere.
    run = restore.fenced(run_rules.nudged(capsule.run, now_ms), now_ms)
    turn = [record for record in capsule.records if record.seq >= run.turn_seq]
    whole = [_with_body(record, body_of) for record in turn]
    found = restore.doubts_in(run, whole, now_ms, why=WHY)
    records = chain.seal(run.length, run.head, [doubt.draft for doubt in found], run.epoch)
    items = [inbox_rules.opened(None, doubt.item, run.id, now_ms) for doubt in found]
    if records:
        length = run.length + len(records)
        run = replace(run, length=length, head=records[-1].check, effect_length=length)
    held = replace(
        capsule,
        run=run,
        records=capsule.records + records,
        items=capsule.items + tuple(item for item in items if not isinstance(item, Verdict)),
        keys=_doubted(capsule.keys, {doubt.key for doubt in found if doubt.key}, run.id, now_ms),
    )
    return Arriving(held, tuple(doubt.item.step for doubt in found))


def _with_body(record: Record, body_of: Callable[[Record], bytes]) -> Record:
    if record.body or not record.blobs or record.kind not in (Kind.INTENT, Kind.DOUBT):
        return record
    return replace(record, body=body_of(record))


def _doubted(keys: Sequence[Key], named: set[str], run: str, now_ms: int) -> tuple[Key, ...]:
    held = {key.key for key in keys if key.state in (KeyState.RESERVED, KeyState.IN_DOUBT)}
    if named - held:
        raise Corrupt(f"the key {min(named - held)!r} of a start is not held by the run", run=run)
    return tuple(
        replace(key, state=KeyState.IN_DOUBT, changed_ms=now_ms) if key.key in named else key for key in keys
    )


def is_known(known: RunRow, capsule: Capsule, stored: Callable[[], Iterable[Record]]) -> bool:
    """Return whether a store's run is the one in the capsule, perhaps continued; False if it is another one.

    `stored` iterates over the store's records of it.
    """
    run = capsule.run
    if (known.length, known.head) == (run.length, run.head):
        return True
    if known.length < run.length or known.fingerprint != run.fingerprint:
        return False
    if known.base == run.length:
        return known.base_check == run.head
    return any(record.seq == run.length - 1 and record.check == run.head for record in stored())


def exists(known: RunRow, capsule: Capsule) -> IdConflict:
    """Return the error for a run that the store has already, with another history."""
    run = capsule.run
    return IdConflict(
        f"the store has a run of this id with another history: {known.length} records,"
        f" {known.state}; the capsule has {run.length}, {run.state}",
        run=run.id,
        remedy="Nothing of the capsule was taken. Keep the one that is there, or remove it first",
    )


def taken_id(known: RunRow) -> IdConflict:
    """Return the error for a run that cannot arrive, because the store has one of its id."""
    was_here = known.state is State.MOVED
    return IdConflict(
        f"the store has a run of this id: it is {known.waits if was_here else known.state}",
        run=known.id,
        remedy="A run can return only to a store that has forgotten it; move it to another one"
        if was_here
        else "It is a copy, or another run: nothing of it was changed",
    )


def key_on_arrival(known: Key | None, key: Key) -> Key | KeyConflict:
    """Return the row of a key after an import, or the error that refuses it, naming both.

    A key that the store knows as free gives way; one that is done stays as it is if it was the same action.
    """
    if known is None:
        return key
    is_of_action = (known.action, known.fingerprint) == (key.action, key.fingerprint)
    # It comes back with what became of it. Another run's claim says nothing of the run that has it there.
    if (
        known.state is KeyState.MOVED
        and is_of_action
        and (known.run == key.run or key.state in (KeyState.SETTLED, KeyState.PRUNED))
    ):
        return key
    is_same = is_of_action and known.run == key.run
    if known.state is KeyState.FREE:
        return replace(key, generation=max(known.generation, key.generation))
    if key.state is KeyState.FREE:
        return known  # the capsule has no claim to it
    if is_same and known.generation == key.generation and known.state is key.state and known.body == key.body:
        return known
    if is_same and known.state is KeyState.SETTLED and key.state is KeyState.PRUNED:
        return known
    return KeyConflict(
        f"the key {key.key!r} is {key.state} by run {key.run!r} (action {key.action!r}) in the capsule,"
        f" and {known.state} by run {known.run!r} (action {known.action!r}) in this store",
        run=key.run,
        remedy="The action may have been done twice: check where its effect shows."
        " Nothing of the run was imported",
    )


def taken_item(item: Item) -> IdConflict:
    """Return the error for an inbox item whose id the store has already."""
    return IdConflict(
        f"the inbox item {item.id!r} exists in this store", run=item.run, remedy="Nothing was imported"
    )


def queue_of(capsule: Capsule) -> tuple[Signal, ...]:
    """Return all signals that were ever sent to a run; what a capsule leaves out of those taken is empty."""
    known = {signal.number: signal for signal in capsule.signals}
    run = capsule.run.id
    return tuple(
        known.get(number) or Signal(run=run, number=number, name="", id="", body=b"", at_ms=0, taken=0)
        for number in range(1, capsule.last_signal + 1)
    )


# Moves -------------------------------------------------------------------------------------------
#
#     source: unfinished ─depart→ MOVED, on its way ─arrived→ MOVED, in the other store
#                                                   └─called back→ as it was
#     target:                            (nothing) ─import→ unfinished
#
# A document in the source names each move and its runs; one in the target says that it arrived there, or
# that it was called back and must not arrive any more. Both are written in the transactions of the runs. So
# a move that was called back cannot be finished by a process that was stopped meanwhile.

OUT, IN = "transfer/out/", "transfer/in/"
"""The names of the documents of moves, in the source and in the target."""
ARRIVED, CALLED_BACK = b'"arrived"', b'"called back"'


class Traveller(Struct, frozen=True):
    """A run of a move, as it was before."""

    id: str
    state: State
    due_ms: int | None
    waits: str


class Journey(Struct, frozen=True):
    """The document of a move in its source: where it leads, its runs, and how far it is."""

    to: str
    url: str
    runs: tuple[Traveller, ...]
    stage: Literal["on its way", "arrived", "called back"] = "on its way"


_ON_ITS_WAY = "on its way to "
_JOURNEY = msgspec.json.Decoder(Journey)
write_journey = msgspec.json.Encoder().encode


def read_journey(body: bytes) -> Journey:
    """Return the document of a move."""
    return _JOURNEY.decode(body)


def journey_of(runs: Iterable[RunRow], move: Move) -> Journey:
    """Return the document of a move that begins."""
    return Journey(move.to, move.url, tuple(_traveller(run) for run in runs))


def _traveller(run: RunRow) -> Traveller:
    if run.state is State.RUNNING:
        return Traveller(run.id, advance(run.state, Event.RELEASE, run=run.id), run.changed_ms, "")
    return Traveller(run.id, run.state, run.due_ms, run.waits)


def departing(run: RunRow, url: str, now_ms: int) -> RunRow:
    """Return the row of a run that leaves: its owner is fenced, and no worker may claim it."""
    return replace(
        run,
        state=advance(run.state, Event.DEPART, run=run.id),
        epoch=run.epoch + 1,
        session=None,
        due_ms=None,
        waits=f"{_ON_ITS_WAY}{url}",
        news=run.news + 1,
        is_alone=False,
        left_by=None,
        changed_ms=now_ms,
    )


def target_of(run: RunRow) -> str | None:
    """Return where a run is on its way to; None if it is here, or its arrival is noted here."""
    is_away = run.state is State.MOVED and run.waits.startswith(_ON_ITS_WAY)
    return run.waits.removeprefix(_ON_ITS_WAY) if is_away else None


def arrived(run: RunRow, url: str, now_ms: int) -> RunRow:
    """Return the mark that a run leaves behind."""
    return replace(run, waits=f"moved to {url}", retrying="", changed_ms=now_ms)


def called_back(run: RunRow, before: Traveller, now_ms: int) -> RunRow:
    """Return the row of a run that has not left after all."""
    due = before.due_ms if before.state is State.PENDING else now_ms
    state = advance(run.state, Event.RETURN, run=run.id)
    return replace(run, state=state, due_ms=due, waits="", news=run.news + 1, changed_ms=now_ms)


def as_before(capsule: Capsule, before: Traveller) -> Capsule:
    """Return the capsule of a departed run, as it continues in the other store."""
    run = replace(capsule.run, state=before.state, due_ms=before.due_ms, waits=before.waits)
    return replace(capsule, run=run)


def fault_in_tree(
    run: RunRow, going: Collection[str], parent: RunRow | None, children: Iterable[RunRow]
) -> UsageError | None:
    """Return why a run cannot leave: it has ended, has left, or leaves a parent or a child behind."""
    if run.state.is_final:
        return run_rules.finished(run, "moved; it can be copied with `ninelives export`")
    if run.state is State.MOVED:
        return run_rules.moved_away(run, "moved")
    bound = [one.id for one in (parent, *children) if one is not None and _is_bound(one, going)]
    if not bound:
        return None
    return UsageError(
        f"the run belongs to {', '.join(map(repr, bound[:5]))}, and would be cut off from it",
        run=run.id,
        remedy="Move the whole tree: name the run at its top",
    )


def _is_bound(one: RunRow, going: Collection[str]) -> bool:
    return one.id not in going and not one.state.is_final and one.state is not State.MOVED


def moved_key(key: Key, url: str, now_ms: int) -> Key:
    """Return the row of a key whose owner has moved before it was settled."""
    return replace(key, state=KeyState.MOVED, body=msgspec.json.encode(url), changed_ms=now_ms)
