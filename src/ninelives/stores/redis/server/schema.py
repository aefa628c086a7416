"""The versions of the stored data. A migration goes run by run; any process can continue it.

There is no transaction over everything. So the store first gets a version that no process works with, `1>2`:
from then on every script of an old process refuses to write, and no new process starts to work. Then each run
is rewritten by one script call, on the condition that the version is still `1>2` and the run is as it was
read. Then the version becomes `2`. A process that opens a half-migrated store continues from the mark. Many
may do so at once: each finds what the others have done, and a late one finds another version and writes
nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from redis.exceptions import RedisError

from ninelives.core.errors import Corrupt, StoreAway, StoreUnavailable
from ninelives.core.model.run import Record, State
from ninelives.core.model.totals import summed
from ninelives.stores.redis import encoding
from ninelives.stores.redis.server.address import Address, parse
from ninelives.stores.redis.server.connection import ConnectionLost, ServerConnection, translate
from ninelives.stores.redis.server.key_names import Names
from ninelives.stores.redis.server.scripts import VERSION
from ninelives.stores.redis.transaction import Transaction
from ninelives.stores.shared import maintenance

_FIRST = 1
_PART, _DROPPED_AT_ONCE = 100, 1_000
_TRIES = 1000
Step = Callable[[str, bytes, Sequence[bytes]], bytes]
"""Returns a run's new tail, given its id, its tail and its records. Deterministic and idempotent."""


def _second(run: str, tail: bytes, records: Sequence[bytes]) -> bytes:
    """Append the sums of the journal to the tail; older records stay as they are.

    A damaged record is skipped: the next worker that loads the run finds it.
    """
    if encoding.has_sums(tail):
        return tail
    found: list[Record] = []
    for raw in records:
        with suppress(Corrupt):
            found.append(encoding.record_of(raw, run))
    return tail + b" " + encoding.sums_of(summed(found))


STEPS: tuple[Step | None, ...] = (_second, None)
"""How a run gets from version n to n + 1, starting with 1; None leaves runs as they are."""


def is_there(url: str) -> bool:
    """Return whether a prefix holds a store, without creating one. Raises StoreError."""
    address = parse(url)
    with _asking(address, "Nothing was written; try again") as ask:
        return bool(ask(b"EXISTS", Names(address.prefix).store))


def drop(url: str) -> None:
    """Remove a whole deployment that is no longer used. Raises StoreError."""
    address = parse(url)
    cursor, pattern = b"", Names(address.prefix).tag + b"*"  # a prefix has no wildcards in it
    with _asking(address, "Try again to remove the rest") as ask:
        while cursor != b"0":
            cursor, names = ask(b"SCAN", cursor or b"0", b"MATCH", pattern, b"COUNT", _DROPPED_AT_ONCE)
            # CRASH: part of it is left; a second call removes the rest.
            if names:
                ask(b"UNLINK", *names)


@contextmanager
def _asking(address: Address, remedy: str) -> Iterator[Callable[..., Any]]:
    """Yield what sends one command outside of any store, and returns its answer."""

    def ask(*command: bytes | int) -> Any:
        (answer,) = connection.ask([command])
        if isinstance(answer, RedisError):
            raise translate(answer) from answer
        return answer

    connection = ServerConnection(address)
    try:
        yield ask
    except ConnectionLost as error:
        raise StoreAway("Redis: the server closed the connection", remedy=remedy) from error
    finally:
        connection.close()


def open_version(tx: Transaction) -> tuple[int, int]:
    """Initialise a new store, or migrate an old one; return the versions before and after.

    Raises SchemaMismatch when it is newer than this version of ninelives.
    """
    store = tx.names.store
    (version,) = tx.ask([(b"HGET", store, b"version")])
    if version is None:  # write only then, so that a server without free memory can still be read
        *_, version = tx.ask(
            [
                (b"HSETNX", store, b"id", secrets.token_hex(16).encode()),
                (b"HSETNX", store, b"version", VERSION),
                (b"HGET", store, b"version"),
            ]
        )
    before = None
    for _ in range(_TRIES):
        known, under_way = _read(version)
        before = known if before is None else before
        if known == int(VERSION) and not under_way:
            return before, known
        version = _advance(tx, known, is_under_way=under_way)
    raise StoreUnavailable("the migration keeps conflicting with other processes")


def _read(version: bytes) -> tuple[int, bool]:
    """Return a version, and whether a migration to the next is under way. Raises SchemaMismatch."""
    first, _, second = version.partition(b">")
    try:
        known = int(first)
    except ValueError:
        known = 0
    if not _FIRST <= known <= int(VERSION) or (second and known == int(VERSION)):
        raise maintenance.unknown_version(repr(version.decode(errors="replace")), _FIRST, int(VERSION))
    return known, bool(second)


def _advance(tx: Transaction, known: int, *, is_under_way: bool) -> bytes:
    """Migrate by one step; return the version after it."""
    names, way = tx.names, b"%d>%d" % (known, known + 1)
    if not is_under_way:
        found: bytes = tx.call("version", [names.store], [b"%d" % known, way])
        # CRASH: no process can write; the next one that opens the store continues from here.
        return found
    step = STEPS[known - _FIRST]
    if step is not None and not _migrate_runs(tx, step, way):
        (version,) = tx.ask([(b"HGET", names.store, b"version")])
        return version or b""
    done: bytes = tx.call("version", [names.store], [way, b"%d" % (known + 1)])
    return done


def _migrate_runs(tx: Transaction, step: Step, way: bytes) -> bool:
    """Migrate all runs; return False when another process has already finished the migration."""
    names = tx.names
    for part in _runs(tx):
        rows = tx.ask([(b"HMGET", names.run(run), b"r", b"t") for run in part])
        for run, (rest, tail) in zip(part, rows, strict=True):
            # A run that another process migrated meanwhile counts as done:
            # under this version only migrations write.
            if rest is not None and tail is not None and not _migrate(tx, step, way, run, rest, tail):
                return False
            # CRASH: some runs have the new version; the mark holds how far it got.
    return True


def _migrate(tx: Transaction, step: Step, way: bytes, run: str, rest: bytes, tail: bytes) -> bool:
    """Migrate one run; return False when another process has already finished the migration."""
    names = tx.names
    (records,) = tx.ask([(b"LRANGE", names.journal(run), 0, -1)])
    after = step(run, tail, records)
    try:
        made = encoding.run_of(run, rest, after)
    except Corrupt:
        return True  # it was damaged before, and stays so: it must not block the others
    if made is None:
        return True
    keys = [names.store, names.run(run), *(names.labelled(*label) for label in made.labels.items())]
    answer = tx.call("migrate", keys, [way, tail, after, run.encode(), made.number])
    return bool(answer != b"version")


def _runs(tx: Transaction) -> Iterator[list[str]]:
    """Yield the ids of all runs in the order of their numbers, starting at an earlier attempt's mark."""
    store = tx.names.store
    # Each process works in the order of numbers from a mark on, so all runs below any mark are done.
    (mark,) = tx.ask([(b"HGET", store, b"migrated")])
    commands = [(b"ZRANGE", tx.names.in_state(state), 0, -1, b"WITHSCORES") for state in State]
    flat = [pair for one in tx.ask(commands) for pair in zip(one[1::2], one[::2], strict=True)]
    first = int(mark or 0)
    numbered = sorted((int(float(number)), run) for number, run in flat)
    ordered = [run.decode() for number, run in numbered if number >= first]
    for start in range(0, len(ordered), _PART):
        yield ordered[start : start + _PART]
