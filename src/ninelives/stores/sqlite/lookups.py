"""Runs, keys, inbox items and blobs, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ninelives.core.model.inbox import Item
from ninelives.core.model.key import Key
from ninelives.core.model.run import RunQuery, RunRow
from ninelives.core.rules import run_rules
from ninelives.core.values import blobs
from ninelives.stores.shared import rows
from ninelives.stores.shared.rows import decoding
from ninelives.stores.sqlite import checks
from ninelives.stores.sqlite.transaction import Transaction, find_key, find_run


def find_runs(tx: Transaction, names: Sequence[str]) -> dict[str, RunRow]:
    """Return the rows of those runs that exist."""
    return {run: row for run in names if (row := find_run(tx, run)) is not None}


def list_runs(tx: Transaction, query: RunQuery) -> list[RunRow]:
    """Return the matching runs, newest first; see `Store.list_runs`."""
    states, labels = (msgspec.json.encode(part).decode() for part in (query.states, query.labels))
    wanted = msgspec.to_builtins(query) | {"states": states, "labels": labels}
    name = "list_runs" if query.parent is None else "list_children"
    if query.labels and query.parent is None:
        name = "list_labelled"
        wanted["label"], wanted["value"] = next(iter(query.labels.items()))
    with decoding("a run's row"):
        return [rows.run_of(row) for row in tx.all(name, wanted)]


def read_keys(tx: Transaction, keys: Sequence[str]) -> dict[str, Key]:
    """Return the rows of those keys that were ever used."""
    return {key: row for key in keys if (row := find_key(tx, key)) is not None}


def list_items(
    tx: Transaction, run: str | None, item: str | None, limit: int, *, answered: bool
) -> list[Item]:
    """Return the items that may match, oldest first; see `Store.list_inbox`."""
    if item is not None:
        found = tx.all("read_item", (item,))
    elif run is not None:
        found = tx.all("items_of_run", (run,))
    else:
        found = tx.all("list_inbox" if answered else "list_open_items", (limit,))
    with decoding("an inbox item", run):
        return [rows.item_of(row) for row in found]


def known_blobs(tx: Transaction, digests: Sequence[bytes]) -> set[bytes]:
    """Return which of these blobs exist."""
    return {digest for digest in digests if tx.one("has_blob", (digest,)) is not None}


def read_blobs(tx: Transaction, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return those blobs that exist, packed."""
    return {digest: row[0] for digest in digests if (row := tx.one("read_blob", (digest,))) is not None}


def put_blobs(tx: Transaction, contents: Mapping[bytes, bytes], packed: Mapping[bytes, bytes]) -> None:
    """Insert blobs, and spare known ones from pruning for a while: they are about to be referred to."""
    for digest, content in contents.items():
        # A sweep may have removed it since the caller asked which are known.
        if digest in packed or tx.one("has_blob", (digest,)) is None:
            sealed = checks.sealed("blobs", (digest, tx.now_ms))
            tx.do("insert_blob", (*sealed, packed.get(digest) or blobs.pack(content)))
        else:
            # Only when a quarter of its grace is over: a blob that every step puts again costs no write.
            tx.do("touch_blob", (tx.now_ms, digest, tx.now_ms - run_rules.BLOB_GRACE_MS // 4))
