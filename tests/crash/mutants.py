"""Planted bugs. Each is applied in a child process only, and some campaign must turn red with it.

A harness that finds nothing proves nothing; one that finds every bug of this list, and nothing without
them, has eyes where it counts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw
from msgspec.structs import replace

from ninelives.core.errors import Corrupt, StoreUnavailable
from ninelives.core.journal import chain
from ninelives.core.model.commit import Commit, Outcome, Verdict
from ninelives.core.model.key import Key
from ninelives.core.model.run import RunRow
from ninelives.core.rules import dedup, run_rules
from ninelives.core.values import blobs
from ninelives.engine.commit.committer import Committer
from ninelives.engine.commit.ticket import (
    NO_EXTRAS,
    Draft,
    Tail,
    Ticket,
    commit_of,
    commit_of_single,
    deliver,
)
from ninelives.stores.postgres.server import pool
from ninelives.stores.postgres.server import queries as served_sql
from ninelives.stores.sqlite import checks, commits, journals, queries, transaction
from ninelives.stores.sqlite.files import (
    anchor,
    connection,
    database,
    schema,
    structure,
    wakeups,
    write_queue,
)

_DEFINED: dict[str, Callable[[], None]] = {}


def plant(name: str) -> None:
    """Plant a bug in this process; the empty name plants none."""
    if name:
        _DEFINED[name]()


def names() -> list[str]:
    """Return the bugs that can be planted."""
    return list(_DEFINED)


def meaning(name: str) -> str:
    """Say what a bug does."""
    return (_DEFINED[name].__doc__ or "").strip()


def _mutant(apply: Callable[[], None]) -> Callable[[], None]:
    _DEFINED[apply.__name__] = apply
    return apply


def _put(owner: object, name: str, new: object) -> None:
    """Replace an attribute of a module or class, in this process, for good."""
    if not hasattr(owner, name):
        raise AttributeError(f"{owner} has no {name}: the mutant would change nothing")
    setattr(owner, name, new)


def _statement(name: str, text: str) -> None:
    _put(transaction, "SQL", {**vars(transaction)["SQL"], name: text})


# Durability -----------------------------------------------------------------------------------


@_mutant
def sync_normal() -> None:
    """The log is not synced at each commit: only a power cut can tell."""
    pragmas = [(name, 1 if name == "synchronous" else value) for name, value in connection._PRAGMAS]
    _put(connection, "_PRAGMAS", tuple(pragmas))


@_mutant
def ack_first() -> None:
    """Whoever waits is told before the transaction, to look fast."""
    original = Committer._write

    def write(self: Committer, groups: list[list[Ticket]]) -> None:
        plain = [group for group in groups if all(ticket.extras is NO_EXTRAS for ticket in group)]
        commits = [commit_of(group) for group in plain]
        for group, commit in zip(plain, commits, strict=True):
            group[0].tail.move(commit, Outcome.COMMITTED)
            for ticket in group:
                ticket.answer(Verdict(commit.run, Outcome.COMMITTED))
            deliver(group)
        if commits:
            time.sleep(0.002)  # a busy disk: whoever was told has acted on it by now
            self._store.commit(commits)
        early = {id(ticket) for group in plain for ticket in group}
        self._batch = [ticket for ticket in self._batch if id(ticket) not in early]
        original(self, [group for group in groups if group not in plain])

    _put(Committer, "_write", write)


@_mutant
def alone_first() -> None:
    """Whoever is alone is told at once, and the record is written before the next one."""
    late: list[Commit] = []

    def append_alone(self: Committer, tail: Tail, draft: Draft) -> Verdict | None:
        commit = commit_of_single(tail, draft, self._clock.now_ms())
        if commit is None:
            return None
        flush(self)
        late.append(commit)
        tail.move(commit, Outcome.COMMITTED)
        return Verdict(commit.run, Outcome.COMMITTED)

    def flush(self: Committer) -> None:
        while late:
            self._store.commit([late.pop()])

    def first(original: Callable[..., None]) -> Callable[..., None]:
        def flushed(self: Committer, *given: Any) -> None:
            flush(self)
            original(self, *given)

        return flushed

    _put(Committer, "append", append_alone)
    _put(Committer, "_write", first(Committer._write))
    _put(Committer, "close", first(Committer.close))


@_mutant
def torn_commit() -> None:
    """The run's row and its records go in two transactions."""
    original = commits._append

    def append(tx: transaction.Transaction, done: Mapping[str, int], batch: Sequence[Commit]) -> None:
        tx.cursor.execute("COMMIT")
        tx.cursor.execute("BEGIN IMMEDIATE")
        original(tx, done, batch)

    _put(commits, "_append", append)


@_mutant
def sync_retried() -> None:
    """A failed sync is taken for a passing trouble and tried again."""
    original = connection._translate_io

    def translate_io(code: int, told: str, opened: apsw.Connection | None) -> Any:
        if code == apsw.SQLITE_IOERR_FSYNC:
            return StoreUnavailable(told)
        return original(code, told, opened)

    _put(connection, "_translate_io", translate_io)


@_mutant
def made_in_place() -> None:
    """A new database is made under its own name: half of it may be there."""

    def create(self: database.Database) -> None:
        anchor.create(self.paths.anchor, b"i" * 16)
        self.paths.database.touch(mode=0o600)
        made = connection.connect(self.paths.database, create=True)
        schema.create(made, self._steps, b"i" * 16)
        made.close()

    _put(database.Database, "_create", create)


@_mutant
def migrated_in_pieces() -> None:
    """A migration's statements and its version number are not one transaction."""

    def migrate(opened: apsw.Connection, steps: Sequence[str]) -> tuple[int, int]:
        before = int(opened.pragma("user_version"))
        for number, step in enumerate(steps[before:], before + 1):
            opened.execute(step)
            opened.pragma("user_version", number)
            opened.execute(queries.SQL["set_version"], (number,))
        return before, len(steps)

    _put(schema, "migrate", migrate)


# Fencing and dedup ----------------------------------------------------------------------------


@_mutant
def epoch_dropped() -> None:
    """Whoever knows the journal's end may write, owner or not."""
    # A zombie's row is not as it knows it, so its append goes this way and not by what is known.
    _statement("append_plain", queries.SQL["append_plain"].replace("AND epoch = ?5", "AND ?5 >= 0"))
    served = served_sql.statements

    def statements(schema: str) -> Mapping[str, served_sql.Statement]:
        found = dict(served(schema))
        for name, fence in (("append_one", b"AND r.epoch = $2"), ("append_many", b"AND r.epoch = g.epoch")):
            assert fence in found[name].text
            found[name] = replace(found[name], text=found[name].text.replace(fence, b""))
        return found

    _put(pool, "statements", statements)
    original = run_rules.committed

    def committed(run: RunRow, commit: Commit, now_ms: int) -> RunRow | Verdict:
        return original(run, replace(commit, epoch=run.epoch), now_ms)

    _put(run_rules, "committed", committed)


@_mutant
def head_dropped() -> None:
    """The owner's epoch is enough; where it believes the journal ends does not matter."""
    original = run_rules.committed

    def committed(run: RunRow, commit: Commit, now_ms: int) -> RunRow | Verdict:
        known = replace(run, length=commit.length, head=commit.head)
        return original(known, commit, now_ms)

    _put(run_rules, "committed", committed)


@_mutant
def keys_unguarded() -> None:
    """Everybody who asks for a key gets it."""
    original = dedup.reserved

    def reserved(known: Key | None, op: Any, run: str, now_ms: int) -> Key | Verdict:
        return original(None, op, run, now_ms)

    _put(dedup, "reserved", reserved)


@_mutant
def locks_inherited() -> None:
    """A forked child keeps its parent's session lock."""
    _put(database.Database, "disown", lambda self: None)
    _put(pool.Pool, "disown", lambda self: None)


# Integrity ------------------------------------------------------------------------------------


@_mutant
def rows_unchecked() -> None:
    """The checks of rows are not verified."""
    original = checks.seal

    def seal(table: str, values: Sequence[Any]) -> bytes:
        class Any8(bytes):
            def __eq__(self, other: object) -> bool:
                return True

            def __ne__(self, other: object) -> bool:
                return False

            __hash__ = bytes.__hash__

        return Any8(original(table, values))

    _put(checks, "seal", seal)


@_mutant
def structure_unchecked() -> None:
    """The structure of the file is not checked when it is opened, and what is missing is believed to be."""
    _put(structure, "require_sound", lambda *args: None)
    _put(transaction, "_confirm_missing", lambda *args: None)
    _put(journals, "_confirm_counts", lambda *args: None)
    nothing = {"key_again": "SELECT 1 WHERE ?1 IS NULL"}
    nothing |= dict.fromkeys(("signal_again", "item_again"), "SELECT 1 WHERE ?1 IS NULL AND ?2 IS NULL")
    _put(transaction, "SQL", {**queries.SQL, **nothing})


@_mutant
def chain_unchecked() -> None:
    """Neither a run's chain nor a blob's digest is verified."""
    _put(chain, "verify", lambda *args, **kwargs: None)

    def unpack(name: bytes, packed: bytes) -> bytes:
        import zlib

        try:
            return zlib.decompress(packed[1:]) if packed[:1] == b"z" else packed[1:]
        except zlib.error:
            raise Corrupt("not even zlib can read it") from None

    _put(blobs, "unpack", unpack)


@_mutant
def nothing_checked() -> None:
    """No checksum of any kind is verified."""
    rows_unchecked()
    structure_unchecked()
    chain_unchecked()


@_mutant
def anchor_ignored() -> None:
    """The database is not compared with its anchor."""
    _put(anchor, "compare", lambda *args, **kwargs: None)


@_mutant
def counter_stands() -> None:
    """Commits are not counted, so the anchor says nothing."""

    def count(self: database.Database, tx: transaction.Transaction) -> int:
        return int(self._commits)

    _put(database.Database, "_count", count)


# Many processes -------------------------------------------------------------------------------


@_mutant
def turn_kept() -> None:
    """The process that came first leaves the queue after every fiftieth commit only."""
    enter, leave = write_queue.WritersQueue.acquire, write_queue.WritersQueue.release
    turns = [0]

    def leaves() -> bool:
        return turns[0] < 10 or turns[0] % 50 == 0

    def acquire(self: write_queue.WritersQueue, *, urgent: bool = False) -> None:
        if leaves():
            enter(self, urgent=urgent)

    def release(self: write_queue.WritersQueue) -> None:
        turns[0] += 1
        if leaves():
            leave(self)

    folder = Path(os.environ["NINELIVES_GREEDY"])
    try:
        folder.mkdir()
    except FileExistsError:
        return
    _put(write_queue.WritersQueue, "acquire", acquire)
    _put(write_queue.WritersQueue, "release", release)


@_mutant
def wake_dropped() -> None:
    """One wake-up in a hundred is not sent."""
    original = wakeups.Datagrams.send
    sent = [0]

    def send(self: wakeups.Datagrams, *, only_readers: bool = False) -> None:
        sent[0] += 1
        if sent[0] % 100:
            original(self, only_readers=only_readers)

    _put(wakeups.Datagrams, "send", send)
