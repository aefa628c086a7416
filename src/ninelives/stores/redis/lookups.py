"""Runs, keys, inbox items, blobs, documents and counters, by name.

To list runs, newest first, a label's index is read, or the indexes of all states together, in parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from ninelives.core.errors import Corrupt
from ninelives.core.model.capsule import Changes, KeyPage, RunMark
from ninelives.core.model.counter import Counts, RunCount, Series
from ninelives.core.model.document import UNREADABLE, Document
from ninelives.core.model.gauges import Gauges
from ninelives.core.model.inbox import Item, ItemState
from ninelives.core.model.key import Key
from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.core.rules import counting, documents, gauges, run_rules
from ninelives.core.values import blobs
from ninelives.stores.redis import encoding
from ninelives.stores.redis.run_rows import peek_runs, read_runs
from ninelives.stores.redis.server.key_names import Names
from ninelives.stores.redis.transaction import PART, Transaction
from ninelives.stores.shared.rows import counter_of, decoding
from ninelives.stores.shared.selection import fits, is_of_ended, read_cursor, write_cursor

_PART = 100
_COUNTED = 1_000
Known = dict[tuple[bytes, bytes], tuple[str, str]]
_KNOWN: WeakKeyDictionary[Names, Known] = WeakKeyDictionary()
"""By store, and by a run's id and number: its agent and its queue, which never change."""
_TRIES = 5


def find_runs(tx: Transaction, names: Sequence[str]) -> dict[str, RunRow]:
    """Return the rows of those runs that exist."""
    return read_runs(tx, names)


def list_runs(tx: Transaction, query: RunQuery) -> list[RunRow]:
    """Return the matching runs; see `Store.list_runs`."""
    if query.limit == 0:
        return []
    found: list[RunRow] = []
    for part in _candidates(tx, query):
        runs = peek_runs(tx, part)
        found += [run for run in runs.values() if fits(run, query)]
        if len(found) >= query.limit:
            break
    return found[: query.limit]


def _candidates(tx: Transaction, query: RunQuery) -> Iterator[list[str]]:
    """Yield the ids of runs that may match, newest first."""
    names = tx.names
    if query.parent is not None:
        (flat,) = tx.ask([(b"HGETALL", names.children(query.parent))])
        born = [(int(number), name) for name, number in zip(flat[::2], flat[1::2], strict=True) if name]
        ordered = [name.decode() for _, name in sorted(born, reverse=True)]
        yield from (ordered[start : start + _PART] for start in range(0, len(ordered), _PART))
        return
    if is_of_ended(query):
        yield from _ended_since(tx, query)
        return
    indexes = [names.in_state(state) for state in query.states or tuple(State)]
    if query.labels:
        indexes = [names.labelled(*next(iter(query.labels.items())))]
    below = b"+inf" if query.after is None else f"({query.after}"
    while True:
        commands = [
            (b"ZREVRANGEBYSCORE", index, below, b"-inf", b"WITHSCORES", b"LIMIT", 0, _PART)
            for index in indexes
        ]
        lists = tx.ask(commands)
        pairs = [
            (int(float(n)), name) for flat in lists for name, n in zip(flat[::2], flat[1::2], strict=True)
        ]
        # A list that was cut off may have more entries below its end, so only use numbers above it.
        floor = max((int(float(flat[-1])) for flat in lists if len(flat) == 2 * _PART), default=0)
        part = sorted((pair for pair in pairs if pair[0] >= floor), reverse=True)
        if not part:
            return
        yield [name.decode() for _, name in part]
        below = f"({part[-1][0]}"


def _ended_since(tx: Transaction, query: RunQuery) -> Iterator[list[str]]:
    """Yield the ids of the runs that ended since a moment, newest first."""
    names, since = tx.names, query.changed_since_ms or 0
    commands = [(b"ZRANGEBYSCORE", index, since, b"+inf") for index in (names.ended, names.pruned)]
    found = [name.decode() for part in tx.ask(commands) for name in part]
    parts = (found[at : at + _PART] for at in range(0, len(found), _PART))
    runs = [run for part in parts for run in peek_runs(tx, part).values()]
    ordered = [run.id for run in sorted(runs, key=lambda run: -run.number)]
    yield from (ordered[at : at + _PART] for at in range(0, len(ordered), _PART))


def read_keys(tx: Transaction, keys: Sequence[str]) -> dict[str, Key]:
    """Return the rows of those keys that were ever used."""
    found = tx.fields([(tx.names.keys, key.encode()) for key in keys])
    return {key: encoding.key_of(raw) for key, raw in zip(keys, found, strict=True) if raw is not None}


def list_items(
    tx: Transaction, run: str | None, item: str | None, limit: int, *, answered: bool
) -> list[Item]:
    """Return the items that may match, oldest first; see `Store.list_inbox`."""
    names = tx.names
    if item is not None:
        found: list[bytes] = [item.encode()]
    elif run is not None:
        (found,) = tx.ask([(b"ZRANGE", names.items_of(run), 0, -1)])
    else:
        (found,) = tx.ask([(b"ZRANGE", names.all_items if answered else names.inbox, 0, limit - 1)])
    rows = tx.ask([(b"HGET", names.items, name) for name in found]) if found else []
    return [encoding.item_of(raw) for raw in rows if raw is not None]


def known_blobs(tx: Transaction, digests: Sequence[bytes]) -> set[bytes]:
    """Return which of these blobs exist."""
    there = tx.ask([(b"HEXISTS", tx.names.blobs, digest) for digest in digests]) if digests else []
    return {digest for digest, is_there in zip(digests, there, strict=True) if is_there}


def read_blobs(tx: Transaction, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return those blobs that exist, packed."""
    found = tx.ask([(b"GET", tx.names.blob(digest)) for digest in digests])
    return {digest: packed for digest, packed in zip(digests, found, strict=True) if packed is not None}


def put_blobs(tx: Transaction, contents: Mapping[bytes, bytes], packed: Mapping[bytes, bytes]) -> None:
    """Insert blobs, and spare known ones from pruning for a while: they are about to be referred to."""
    names = tx.names
    found = tx.fields([(names.blobs, digest) for digest in contents])
    for digest, put_ms in zip(contents, found, strict=True):
        # A sweep may have removed it since the caller asked which are known.
        if put_ms is None:
            tx.do(b"SET", names.blob(digest), packed.get(digest) or blobs.pack(contents[digest]))
        if put_ms is None or int(put_ms) < tx.now_ms - run_rules.BLOB_GRACE_MS // 4:
            tx.do(b"HSET", names.blobs, digest, tx.now_ms)


def find_document(tx: Transaction, name: str) -> Document | None:
    """Return a document, if there is one; the write compares it."""
    (raw,) = tx.fields([(tx.names.documents, name.encode())])
    return encoding.document_of(raw) if raw is not None else None


def halts_version(raw: bytes | None) -> int:
    """Return the version of the document `halts`: 0 if there is none, UNREADABLE if it is damaged."""
    try:
        return encoding.document_of(raw).version if raw else 0
    except Corrupt:  # no reason to lose the lease: what is halted cannot be read, so nothing may begin
        return UNREADABLE


def list_documents(tx: Transaction, prefix: str, after: str, limit: int) -> list[Document]:
    """Return documents by name."""
    above, least, below = (name.encode() for name in documents.bounds(prefix, after))
    first = b"(" + above if above >= least and above else b"[" + least
    command = (b"ZRANGEBYLEX", tx.names.document_names, first, b"(" + below, b"LIMIT", 0, limit)
    (names,) = tx.ask([command])
    (found,) = tx.ask([(b"HMGET", tx.names.documents, *names)]) if names else ((),)
    # One that is None was removed between the two commands.
    return [encoding.document_of(raw) for raw in found if raw is not None]


def save_document(tx: Transaction, document: Document) -> bool:
    """Write a document."""
    name = document.name.encode()
    tx.do(b"HSET", tx.names.documents, name, encoding.document_bytes(document))
    tx.do(b"ZADD", tx.names.document_names, 0, name)
    return True


def remove_document(tx: Transaction, name: str) -> None:
    """Remove a document."""
    tx.do(b"HDEL", tx.names.documents, name.encode())
    tx.do(b"ZREM", tx.names.document_names, name.encode())


def count_gauges(tx: Transaction) -> Gauges:
    """Count what metrics show. Reads every unfinished run's row, in parts: runs may move between parts."""
    names = tx.names
    live = [state for state in State if not state.is_final]
    found = tx.ask([(b"ZRANGE", names.in_state(state), 0, -1) for state in live])
    ids = list(dict.fromkeys(name.decode() for part in found for name in part))
    runs: dict[str, RunRow] = {}
    for start in range(0, len(ids), _COUNTED):
        runs |= peek_runs(tx, ids[start : start + _COUNTED])
    items = list_items(tx, None, None, 0, answered=False)  # a range that ends at -1: all of them
    owners = peek_runs(tx, list({item.run for item in items} - runs.keys())) | runs
    opened = [
        (owners[item.run].agent, item)
        for item in items
        if item.state is ItemState.OPEN and item.run in owners
    ]
    left = sorted({run.left_by.encode() for run in runs.values() if run.left_by})
    (raw,) = tx.ask([(b"HMGET", names.sessions, *left)]) if left else ((),)
    sessions = {one.id: one for row in raw if row is not None for one in [encoding.session_of(row, 0)[0]]}
    (information,) = tx.ask([(b"INFO", b"memory")])
    used = [line for line in information.splitlines() if line.startswith(b"used_memory:")]
    size = {"memory": int(used[0].partition(b":")[2])} if used else {}
    return gauges.counted(tx.now_ms, runs.values(), sessions, opened, size)


def add_counts(tx: Transaction, counts: Counts) -> None:
    """Let counters grow."""
    wanted = list(counts)
    fields = [_field(one) for one in wanted]
    found = tx.fields([(tx.names.counters, field) for field in fields]) if fields else []
    for one, field, raw in zip(wanted, fields, found, strict=True):
        value = counts[one] + (_value(field, raw)[1] if raw is not None else 0)
        tx.do(b"HSET", tx.names.counters, field, b"%d" % value)


def read_counters(tx: Transaction) -> tuple[Counts, Sequence[str], Sequence[RunCount]]:
    """Return the counters, the counts of live sessions, and how many runs there are."""
    names = tx.names
    keys = [names.counters, names.live, names.sessions, *map(names.in_state, State)]
    for _ in range(_TRIES):
        flat, sessions, states = tx.call("counters", keys, [])
        runs, is_whole = _counted(tx, states)
        # Else a run was forgotten since, which these counters do not have yet; or one is damaged.
        if is_whole:
            break
    stored = dict(_value(field, raw) for field, raw in zip(flat[::2], flat[1::2], strict=True))
    live = [encoding.session_of(raw, tx.boot_ms)[0] for raw in sessions if raw]
    return stored, [one.counts for one in live if one.ended_ms is None], runs


def count_runs(tx: Transaction) -> Sequence[RunCount]:
    """Count the runs of each agent, queue and state."""
    return read_counters(tx)[2]


def _counted(tx: Transaction, states: Sequence[Sequence[Any]]) -> tuple[list[RunCount], bool]:
    """Count runs, given the ids and numbers of those in each state; and return whether each was read."""
    pairs = [list(zip(flat[::2], flat[1::2], strict=True)) for flat in states]
    there = {one for part in pairs for one in part}
    # Replaced as a whole: two threads may count at once.
    known = {one: facts for one, facts in _KNOWN.get(tx.names, {}).copy().items() if one in there}
    fresh = sorted(there - known.keys())
    for start in range(0, len(fresh), PART):
        part = fresh[start : start + PART]
        rows = peek_runs(tx, [name.decode() for name, _ in part])
        for name, number in part:
            run = rows.get(name.decode())
            if run is not None:
                known[name, number] = run.agent, run.queue
    _KNOWN[tx.names] = known
    found = Counter(
        (*known[one], state.value)
        for state, part in zip(State, pairs, strict=True)
        for one in part
        if one in known
    )
    return counting.run_counts((*one, number) for one, number in found.items()), there <= known.keys()


def verify_counters(tx: Transaction) -> None:
    """Check all counters. Raises Corrupt."""
    (flat,) = tx.ask([(b"HGETALL", tx.names.counters)])
    for field, raw in zip(flat[::2], flat[1::2], strict=True):
        _value(field, raw)


def _field(one: Series) -> bytes:
    return "\0".join(one).encode()


def _value(field: bytes, raw: bytes) -> tuple[Series, int]:
    with decoding("a counter"):
        name, _, labels = field.decode().partition("\0")
        return counter_of((name, labels, int(raw)))


# Changes ----------------------------------------------------------------------------------------
#
# Every write of a run's row but a plain append puts the run at the end of an index, with the store's count of
# writes, in the same script. Only runs that are running can be appended to: those are compared each time. A
# server that lost writes, or was replaced, has another history; then all runs are listed again.


class CountedCursor(Struct, frozen=True, kw_only=True, array_like=True):
    """The count of writes up to which changes are known, and the server's history."""

    count: int
    history: str


def read_changes(tx: Transaction, cursor: str, _: int) -> Changes:
    """Return runs that may have changed, all at once; see `Maintenance.changed_runs`."""
    known, names = read_cursor(cursor, CountedCursor), tx.names
    # Before the lists: what is written meanwhile counts as written later.
    (store, history, count), *states = tx.ask(
        [
            (b"HMGET", names.store, b"id", b"history", b"writes"),
            *((b"ZRANGE", names.in_state(state), 0, -1) for state in State if state is not State.RUNNING),
            (b"ZRANGE", names.in_state(State.RUNNING), 0, -1),
        ]
        if known is None
        else [
            (b"HMGET", names.store, b"id", b"history", b"writes"),
            # The running ones before the changed ones:
            # a run that is parked in between is in the second list.
            (b"ZRANGE", names.in_state(State.RUNNING), 0, -1),
            (b"ZRANGEBYSCORE", names.changed, f"({known.count}", b"+inf"),
        ]
    )
    said = (history or b"").decode()
    if known is not None and (known.history != said or known.count > int(count or 0)):
        return read_changes(tx, "", 0)
    found = list(dict.fromkeys(name for part in states for name in part))
    marks = tuple(_marks(tx, [name.decode() for name in found]))
    after = CountedCursor(count=int(count or 0), history=said)
    return Changes(store=(store or b"").decode(errors="replace"), runs=marks, cursor=write_cursor(after))


def _marks(tx: Transaction, ids: list[str]) -> Iterator[RunMark]:
    for start in range(0, len(ids), PART):
        part = ids[start : start + PART]
        rows = tx.ask([(b"HMGET", tx.names.run(name), b"r", b"t") for name in part])
        for name, (rest, tail) in zip(part, rows, strict=True):
            mark = _mark(name, rest, tail)
            if mark is not None:
                yield mark


def _mark(name: str, rest: bytes | None, tail: bytes | None) -> RunMark | None:
    stamp = blake2b(b"%b\0%b" % (tail or b"", rest or b""), digest_size=16).hexdigest()
    try:
        run = encoding.run_of(name, rest, tail)
    except Corrupt:
        # Listed all the same: reading the run says what is wrong with it.
        return RunMark(id=name, stamp=stamp, length=0, head=b"", created_ms=0, is_final=False)
    if run is None:
        return None  # forgotten meanwhile
    return RunMark(
        id=name,
        stamp=stamp,
        length=run.length,
        head=run.head,
        created_ms=run.created_ms,
        is_final=run.state.is_final,
    )


def list_keys(tx: Transaction, cursor: str, limit: int) -> KeyPage:
    """Return some business keys, in no order; a key may come twice."""
    ((following, part),) = tx.ask([(b"HSCAN", tx.names.keys, cursor or 0, b"COUNT", limit)])
    keys = tuple(encoding.key_of(raw) for raw in part[1::2])
    ended = int(following) == 0
    return KeyPage(keys, "" if ended else following.decode())
