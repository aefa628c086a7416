"""Runs, keys, inbox items and blobs, by name.

To list runs, newest first, a label's index is read, or the indexes of all states together, in parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ninelives.core.model.inbox import Item
from ninelives.core.model.key import Key
from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.core.rules import run_rules
from ninelives.core.values import blobs
from ninelives.stores.redis import encoding
from ninelives.stores.redis.run_rows import peek_runs, read_runs
from ninelives.stores.redis.transaction import Transaction
from ninelives.stores.shared.selection import fits

_PART = 100


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
