"""Runs, keys, inbox items and blobs, by name; each is one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ninelives.core.model.inbox import Item
from ninelives.core.model.key import Key
from ninelives.core.model.run import RunQuery, RunRow
from ninelives.core.rules import run_rules
from ninelives.core.values import blobs
from ninelives.stores.postgres.transaction import Transaction, runs_in
from ninelives.stores.shared import rows


def find_runs(tx: Transaction, names: Sequence[str]) -> dict[str, RunRow]:
    """Return the rows of those runs that exist, in the order of `names`."""
    by_name = runs_in(tx.all("read_runs", (rows.texts(names),)))
    return {name: by_name[name] for name in names if name in by_name}


def list_runs(tx: Transaction, query: RunQuery) -> list[RunRow]:
    """Return the matching runs; see `Store.list_runs`."""
    wanted = msgspec.to_builtins(query) | {
        "states": list(dict.fromkeys(query.states)),
        "labels": msgspec.json.encode(query.labels).decode(),
    }
    return list(runs_in(tx.all(_listing(query), wanted)).values())


def _listing(query: RunQuery) -> str:
    """Return the statement that uses the narrowest index for a query."""
    if query.parent is not None:
        return "list_children"
    if query.session is not None:
        return "list_owned"
    if query.labels:
        return "list_labelled"
    return "list_in_states" if query.states else "list_runs"


def read_keys(tx: Transaction, keys: Sequence[str]) -> dict[str, Key]:
    """Return the rows of those keys that were ever used."""
    found = tx.all("read_keys", (keys,))
    with rows.decoding("a key"):
        by_name = {row[0]: rows.key_of(row) for row in found}
    return {key: by_name[key] for key in keys if key in by_name}


def list_items(
    tx: Transaction, run: str | None, item: str | None, limit: int, *, answered: bool
) -> list[Item]:
    """Return the items that may match, oldest first; see `Store.list_inbox`."""
    if item is not None:
        found = tx.all("read_items", ([item],))
    elif run is not None:
        found = tx.all("items_of_runs", ([run],))
    else:
        found = tx.all("list_inbox" if answered else "list_open_items", (limit,))
    with rows.decoding("an inbox item", run):
        return [rows.item_of(row) for row in found]


def known_blobs(tx: Transaction, digests: Sequence[bytes]) -> set[bytes]:
    """Return which of these blobs exist."""
    return {digest for (digest,) in tx.all("known_blobs", (digests,))}


def read_blobs(tx: Transaction, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return those blobs that exist, packed."""
    return dict(tx.all("read_blobs", (digests,)))


def put_blobs(tx: Transaction, contents: Mapping[bytes, bytes], packed: Mapping[bytes, bytes]) -> None:
    """Insert blobs, and spare known ones from pruning for a while: they are about to be referred to."""
    known = sorted(contents.keys() - packed.keys())
    if known:
        tx.do("touch_blobs", (tx.now_ms, known, tx.now_ms - run_rules.BLOB_GRACE_MS // 4))
        # A sweep may have removed some since the caller asked; what is there after the touch is spared.
        swept = set(known) - known_blobs(tx, known)
        packed = {**packed, **{digest: blobs.pack(contents[digest]) for digest in swept}}
    tx.many("insert_blob", [(digest, content, tx.now_ms) for digest, content in sorted(packed.items())])
