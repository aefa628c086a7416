"""Runs, keys, inbox items and blobs, by name. Needs the store's lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from ninelives.core.model.inbox import Item, ItemState
from ninelives.core.model.key import Key
from ninelives.core.model.run import RunQuery, RunRow
from ninelives.core.rules import run_rules as rules
from ninelives.core.values import blobs
from ninelives.stores.memory.tables import Blob, Transaction
from ninelives.stores.shared.selection import fits


def find_runs(tx: Transaction, names: Sequence[str]) -> dict[str, RunRow]:
    """Return the rows of those runs that exist."""
    runs = tx.contents.rows.runs
    return {name: runs[name] for name in names if name in runs}


def list_runs(tx: Transaction, query: RunQuery) -> list[RunRow]:
    """Return the matching runs, newest first."""
    fitting = [run for run in tx.contents.rows.runs.values() if fits(run, query)]
    return sorted(fitting, key=lambda run: run.number, reverse=True)[: query.limit]


def read_keys(tx: Transaction, keys: Sequence[str]) -> dict[str, Key]:
    """Return the rows of those keys that were ever used."""
    known = tx.contents.rows.keys
    return {key: known[key] for key in keys if key in known}


def list_items(
    tx: Transaction, run: str | None, item: str | None, limit: int, *, answered: bool
) -> list[Item]:
    """Return the items that may match, oldest first."""
    items = tx.contents.rows.items
    found = items.values() if item is None else [items[item]] if item in items else []
    is_wanted = (one for one in found if run in (None, one.run))
    return list(islice((one for one in is_wanted if answered or one.state is ItemState.OPEN), limit))


def known_blobs(tx: Transaction, digests: Sequence[bytes]) -> set[bytes]:
    """Return which of these blobs exist."""
    return {digest for digest in digests if digest in tx.contents.blobs}


def read_blobs(tx: Transaction, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return those blobs that exist, packed."""
    known = tx.contents.blobs
    return {digest: known[digest].packed for digest in digests if digest in known}


def put_blobs(tx: Transaction, contents: Mapping[bytes, bytes], packed: Mapping[bytes, bytes]) -> None:
    """Insert blobs, and spare known ones from pruning for a while: they are about to be referred to."""
    now_ms, kept = tx.now_ms, tx.contents.blobs
    for digest, content in contents.items():
        if digest not in kept:
            kept[digest] = Blob(packed.get(digest) or blobs.pack(content), now_ms)
        elif kept[digest].put_ms < now_ms - rules.BLOB_GRACE_MS // 4:
            kept[digest].put_ms = now_ms
