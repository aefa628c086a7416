"""What operators do: measure, verify. In small parts, so that writers are not held up.

Hashes are read by HSCAN, whose cursor means nothing to a server that was started again: a walk that goes on
there may pass over some rows of that hash, or read them twice. The next walk reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ninelives.core.errors import Corrupt
from ninelives.core.model.key import Key, KeyState
from ninelives.core.model.run import Record, RunRow, State
from ninelives.core.rules.lost_rows import SignalNumbers
from ninelives.store import Fault, Stats
from ninelives.stores.redis import encoding, journals, lookups, recovery_log
from ninelives.stores.redis.run_rows import Entry, entries
from ninelives.stores.redis.server.key_names import Names
from ninelives.stores.redis.transaction import PART, Transaction
from ninelives.stores.shared import maintenance, walk
from ninelives.stores.shared.rows import decoding

_HELD = (KeyState.RESERVED, KeyState.IN_DOUBT)
Page = tuple[list[Fault], int, str | None]


def measure(tx: Transaction) -> Stats:
    """Count what is in the store; this reads every record."""
    names = tx.names
    states = tx.ask([(b"ZCARD", names.in_state(state)) for state in State])
    keys, open_items, sessions, known = tx.ask(
        [(b"HLEN", names.keys), (b"ZCARD", names.inbox), (b"ZCARD", names.live), (b"HKEYS", names.blobs)]
    )
    records = record_bytes = blob_bytes = 0
    for run in run_ids(tx):
        for part in _parts(tx, names.journal(run)):
            records += len(part)
            record_bytes += sum(len(encoding.record_of(raw, run).body) for raw in part)
    for start in range(0, len(known), PART):
        sizes = tx.ask([(b"STRLEN", names.blob(digest)) for digest in known[start : start + PART]])
        blob_bytes += sum(sizes)
    (information,) = tx.ask([(b"INFO", b"persistence")])
    size = [line for line in information.splitlines() if line.startswith(b"aof_current_size:")]
    disk_bytes = int(size[0].partition(b":")[2]) if size else 0
    others = (records, record_bytes, len(known), blob_bytes, keys, open_items, sessions, disk_bytes)
    return maintenance.stats_of(zip(State, states, strict=True), others)


def run_ids(tx: Transaction) -> list[str]:
    """Return the ids of all runs, oldest first."""
    found = tx.ask([(b"ZRANGE", tx.names.in_state(state), 0, -1, b"WITHSCORES") for state in State])
    numbered = [pair for flat in found for pair in zip(flat[1::2], flat[::2], strict=True)]
    return [name.decode() for _, name in sorted(numbered, key=lambda pair: int(float(pair[0])))]


def _parts(tx: Transaction, journal: bytes) -> Iterator[list[bytes]]:
    start = 0
    while True:
        (part,) = tx.ask([(b"LRANGE", journal, start, start + PART - 1)])
        if part:
            yield part
        if len(part) < PART:
            return
        start += PART


def _journal(tx: Transaction, run_id: str) -> tuple[RunRow, tuple[Record, ...]]:
    journal = journals.read_journal(tx, run_id, 0)
    return journal.run, journal.records


def _run_faults(tx: Transaction, row: RunRow, _: Sequence[Record]) -> list[Fault]:
    names, run_id = tx.names, row.id
    found = walk.run_faults(row)
    while True:
        # Read the row and its entries at one moment: other processes may be writing.
        wanted = entries(names, row)
        queries = [_lookup(entry) for entry in wanted]
        digests, parts, *there = tx.ask(
            [
                (b"MULTI",),
                (b"SMEMBERS", names.refers(run_id)),
                (b"HMGET", names.run(run_id), b"r", b"t"),
                *queries,
                (b"EXEC",),
            ]
        )[-1]
        after = encoding.run_of(run_id, *parts)
        if after is None or after == row:
            break
        row = after
    for entry, answer in zip(wanted, there, strict=True):
        if after is not None and not _is_there(entry, answer):
            found.append(Fault(run_id, f"an index entry is missing: {entry[0]} {entry[1]!r}"))
    lost = tx.ask([(b"HEXISTS", names.blobs, digest) for digest in digests]) if digests else []
    missing = [digest for digest, is_there in zip(digests, lost, strict=True) if not is_there]
    return found + [walk.missing_blob(run_id, digest) for digest in sorted(missing)]


def _beside(tx: Transaction, run: RunRow, keys: list[str]) -> walk.Beside:
    names = tx.names
    count, waiting, listed, refers = tx.ask(
        [
            (b"HGET", names.sent(run.id), b"n"),
            (b"HKEYS", names.signals(run.id)),
            (b"ZRANGE", names.items_of(run.id), 0, -1),
            (b"SMEMBERS", names.refers(run.id)),
        ]
    )
    owners = [name for name in (run.session, run.left_by) if name]
    with decoding("the count of signals", run.id):
        signals = SignalNumbers(int(count or 0), frozenset(map(int, waiting)))
    items = (encoding.item_of(raw) for raw in _fields(tx, names.items, listed).values())
    # Kept is what the run refers to and what is counted as referred to.
    counted = _fields(tx, names.referred, list(refers))
    return walk.Beside(
        keys={key.decode(): encoding.key_of(raw) for key, raw in _fields(tx, names.keys, keys).items()},
        items={item.id: item.state for item in items},
        signals=signals,
        sessions={name.decode() for name in _fields(tx, names.sessions, owners)},
        blobs=counted.keys(),
    )


def _fields(tx: Transaction, key: bytes, wanted: Sequence[str | bytes]) -> dict[bytes, bytes]:
    """Return those of these fields of a hash that are there, read in parts."""
    names = [name.encode() if isinstance(name, str) else name for name in wanted]
    found: list[bytes | None] = []
    for start in range(0, len(names), PART):
        found += tx.ask([(b"HMGET", key, *names[start : start + PART])])[0]
    return {name: raw for name, raw in zip(names, found, strict=True) if raw is not None}


def _lookup(entry: Entry) -> tuple[bytes, bytes, bytes]:
    kind, key, member, _ = entry
    return {"set": b"SISMEMBER", "field": b"HEXISTS"}.get(kind, b"ZSCORE"), key, member


def _is_there(entry: Entry, answer: bytes | int | None) -> bool:
    if entry[0] in ("set", "field"):
        return bool(answer)
    return answer is not None and float(answer) == float(entry[3])


def _hash(
    key: Callable[[Names], bytes], check: Callable[[Transaction, list[tuple[bytes, bytes]]], list[Fault]]
) -> walk.Section:
    """Make a section of a hash: some fields and their values at a time."""

    def page(tx: Transaction, after: str, limit: int) -> Page:
        found, cursor = _scanned(tx, key(tx.names), after, limit)
        return check(tx, found), len(found), cursor

    return walk.pages(page)


def _scanned(
    tx: Transaction, key: bytes, after: str, limit: int
) -> tuple[list[tuple[bytes, bytes]], str | None]:
    ((cursor, part),) = tx.ask([(b"HSCAN", key, int(after or 0), b"COUNT", limit)])
    return list(zip(part[::2], part[1::2], strict=True)), cursor.decode() if int(cursor) else None


def _decoded(decode: Callable[[bytes], object], found: list[tuple[bytes, bytes]]) -> list[Fault]:
    faults = []
    for name, raw in found:
        try:
            decode(raw)
        except Corrupt as error:
            faults.append(Fault(None, f"{name!r}: {error.what}"))
    return faults


def _key_faults(tx: Transaction, found: list[tuple[bytes, bytes]]) -> list[Fault]:
    held: list[Key] = []
    faults = []
    for name, raw in found:
        try:
            key = encoding.key_of(raw)
        except Corrupt as error:
            faults.append(Fault(None, f"{name!r}: {error.what}"))
            continue
        if key.state in _HELD:
            held.append(key)
    rows = tx.ask([(b"HMGET", tx.names.run(key.run), b"r", b"t") for key in held]) if held else []
    orphans = []
    for key, parts in zip(held, rows, strict=True):
        owner = encoding.run_of(key.run, *parts)
        if owner is None or owner.state.is_final:
            orphans.append(key)
    # Not one view: the owner may have ended, and let go of its key, between the two reads.
    again = _fields(tx, tx.names.keys, [key.key for key in orphans])
    kept = [
        key
        for key in orphans
        if key.key.encode() in again and encoding.key_of(again[key.key.encode()]) == key
    ]
    return faults + [walk.stray_key(key.key, key.run, key.state) for key in kept]


def _listing(tx: Transaction) -> list[Fault]:
    documents, listed = tx.ask(
        [(b"MULTI",), (b"HLEN", tx.names.documents), (b"ZCARD", tx.names.document_names), (b"EXEC",)]
    )[-1]
    if documents != listed:
        return [Fault(None, f"there are {documents} documents, and {listed} are listed")]
    return []


def _last(tx: Transaction) -> int:
    (last,) = tx.ask([(b"HGET", tx.names.store, b"number")])
    with decoding("the count of runs"):
        return int(last or 0)


def _listed(tx: Transaction, after: int, last: int, limit: int) -> list[tuple[int, str]]:
    # At one moment: a run that changes its state meanwhile would be in none of the answers, or in two.
    queries = [
        (b"ZRANGEBYSCORE", tx.names.in_state(state), b"(%d" % after, last, b"WITHSCORES", b"LIMIT", 0, limit)
        for state in State
    ]
    found = tx.ask([(b"MULTI",), *queries, (b"EXEC",)])[-1]
    pairs = [pair for flat in found for pair in zip(flat[1::2], flat[::2], strict=True)]
    return sorted((int(float(score)), name.decode()) for score, name in pairs)[:limit]


def _digests(tx: Transaction, after: str, limit: int) -> tuple[list[bytes], str | None]:
    found, cursor = _scanned(tx, tx.names.blobs, after, limit)
    return [digest for digest, _ in found], cursor


def _packed(tx: Transaction, digest: bytes) -> bytes | None:
    packed: bytes | None
    packed, known = tx.ask([(b"GET", tx.names.blob(digest)), (b"HEXISTS", tx.names.blobs, digest)])
    if packed is None and known:
        raise Corrupt(f"blob {digest.hex()} is missing")
    return packed


SECTIONS: walk.Sections = {
    "runs": walk.Runs(last=_last, listed=_listed, journal=_journal, faults=_run_faults, beside=_beside),
    "keys": _hash(lambda names: names.keys, _key_faults),
    "items": _hash(lambda names: names.items, lambda _, found: _decoded(encoding.item_of, found)),
    "documents": _hash(lambda names: names.documents, lambda _, found: _decoded(encoding.document_of, found)),
    "sessions": _hash(
        lambda names: names.sessions,
        lambda _, found: _decoded(partial(encoding.session_of, boot_ms=0), found),
    ),
    "others": walk.whole(_listing, lookups.verify_counters, recovery_log.verify),
    "blobs": walk.Blobs(listed=_digests, packed=_packed),
}
"""How the keys are verified, in order."""
