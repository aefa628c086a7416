"""One bench per store: the store, its clock, and the few things that differ between stores."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ninelives.core.journal import recovery_log
from ninelives.core.model.commit import Outcome
from ninelives.core.model.run import RunQuery, RunRow
from ninelives.core.rules import deaths
from ninelives.stores.memory import MemoryStore
from tests.clocks import SteppingClock
from tests.contract.makers import AnyStore, append, new_run, new_session

STORES = ("memory", "sqlite", "postgresql", "redis")


class Bench:
    """A store under test. Subclasses say how to open it and how to damage it."""

    def __init__(self, clock: SteppingClock) -> None:
        self.clock = clock
        self.store = self.open()
        self._opened = [self.store]

    def open(self) -> AnyStore:
        """Open the store's data once more."""
        raise NotImplementedError

    def damage(self, run: str, seq: int) -> None:
        """Change the body of a record behind the store's back."""
        raise NotImplementedError

    def lose_blob(self, digest: bytes) -> None:
        """Remove a blob behind the store's back."""
        raise NotImplementedError

    def lose_reference(self, run: str, digest: bytes) -> None:
        """Forget behind the store's back that a run refers to a blob."""
        raise NotImplementedError

    def damage_log(self, seq: int) -> None:
        """Change the body of an entry of the recovery log behind the store's back."""
        raise NotImplementedError

    def lose_row(self, table: str, run: str, name: str) -> None:
        """Remove a row of keys, items, signals or sessions behind the store's back."""
        raise NotImplementedError

    def reopen(self) -> AnyStore:
        """Return a second store object on the same data."""
        self._opened.append(self.open())
        return self._opened[-1]

    def close(self) -> None:
        """Close all that was opened."""
        for store in self._opened:
            store.close()

    # What most tests begin with -----------------------------------------------------------------

    def session(self, id: str = "s1", **fields: object) -> str:
        """Register a session."""
        return self.store.register_session(new_session(id, **fields)).id

    def create(self, id: str = "r1", **fields: object) -> RunRow:
        """Create one run."""
        (run,) = self.store.create_runs([new_run(id, **fields)])  # type: ignore[arg-type]
        assert isinstance(run, RunRow), run
        return run

    def claim(self, run: str, session: str = "s1") -> RunRow:
        """Claim this run, which is due, and no other."""
        row = self.row(run)
        for other in self.due():
            if other.id != run:
                raise AssertionError(f"{other.id} is due as well")
        asked = {"queues": (row.queue,), "host": row.pin, "solo": deaths.is_suspect(row)}
        (claimed,) = self.store.claim_runs(session, 1, {row.agent: 1}, **asked).runs  # type: ignore[arg-type]
        assert claimed.id == run
        return claimed

    def due(self) -> list[RunRow]:
        """Return the runs that a worker might take."""
        runs = self.store.list_runs(RunQuery(limit=1000))
        now = self.clock.now_ms()
        return [
            run
            for run in runs
            if not run.paused and run.state in ("pending", "checkpointed") and (run.due_ms or now + 1) <= now
        ]

    def running(self, id: str = "r1", **fields: object) -> RunRow:
        """Create a run and claim it, registering the session s1 if needed."""
        if not any(session.id == "s1" for session in self.store.list_sessions()):
            self.session("s1", lease_ms=1_000_000)
        self.create(id, **fields)
        return self.claim(id)

    def write(self, run: RunRow, *bodies: bytes, **parts: object) -> RunRow:
        """Commit, which must go well; return the run's row after it."""
        (verdict,) = self.store.commit([append(run, *bodies, **parts)])  # type: ignore[arg-type]
        assert verdict.outcome is Outcome.COMMITTED, verdict
        return self.row(run.id)

    def row(self, run: str) -> RunRow:
        """Return a run's row, which must be there."""
        row = self.store.read_run(run)
        assert row is not None
        return row

    def snapshot(self, keys: tuple[str, ...] = ("k", "k2")) -> object:
        """Return all there is, to compare before and after."""
        runs = self.store.list_runs(RunQuery(limit=1000))
        return (
            runs,
            [self.store.load_journal(run.id, since=0) for run in runs],
            self.store.list_inbox(answered=True, limit=1000),
            self.store.read_keys(keys),
            [replace(session, left_ms=0) for session in self.store.list_sessions()],
            replace(self.store.stats(), disk_bytes=0),
        )


class MemoryBench(Bench):
    """The reference."""

    def open(self) -> AnyStore:
        """Return the one object there is."""
        return self.store if hasattr(self, "store") else MemoryStore(self.clock)

    def damage(self, run: str, seq: int) -> None:
        """Change a record in the list."""
        journal = self.store._contents.journals[run]  # type: ignore[attr-defined]
        journal[seq] = replace(journal[seq], body=b"other")

    def lose_blob(self, digest: bytes) -> None:
        """Remove a blob from the dictionary."""
        del self.store._contents.blobs[digest]  # type: ignore[attr-defined]

    def lose_reference(self, run: str, digest: bytes) -> None:
        """Remove it from the run's set."""
        refers = self.store._contents.rows.refers  # type: ignore[attr-defined]
        assert digest in refers[run]
        refers[run] -= {digest}

    def damage_log(self, seq: int) -> None:
        """Change an entry in the list."""
        contents = self.store._contents  # type: ignore[attr-defined]
        log, at = contents.log, seq - contents.log_base.seq
        log[at] = replace(log[at], body=b"other")

    def lose_row(self, table: str, run: str, name: str) -> None:
        """Remove a row from its dictionary."""
        contents = self.store._contents  # type: ignore[attr-defined]
        if table == "signals":
            kept = (one for one in contents.rows.signals[run] if str(one.number) != name)
            contents.rows.signals[run] = tuple(kept)
        else:
            del (contents.sessions if table == "sessions" else getattr(contents.rows, table))[name]


class SqliteBench(Bench):
    """A database file in the test's own directory."""

    def __init__(self, clock: SteppingClock, path: Path) -> None:
        self.path = path
        super().__init__(clock)

    def open(self) -> AnyStore:
        """Open the file."""
        from ninelives.stores.sqlite import SqliteStore

        return SqliteStore(self.path, clock=self.clock)

    def damage(self, run: str, seq: int) -> None:
        """Change a record in the table."""
        self._change(
            "UPDATE records SET body = CAST('other' AS BLOB) WHERE seq = ?2"
            " AND run = (SELECT number FROM runs WHERE id = ?1)",
            (run, seq),
        )

    def lose_blob(self, digest: bytes) -> None:
        """Remove a blob from the table."""
        self._change("DELETE FROM blobs WHERE digest = ?1", (digest,))

    def lose_reference(self, run: str, digest: bytes) -> None:
        """Remove its row."""
        where = "run = (SELECT number FROM runs WHERE id = ?1) AND digest = ?2"
        self._change(f"DELETE FROM blob_runs WHERE {where}", (run, digest))

    def damage_log(self, seq: int) -> None:
        """Change an entry in the table."""
        self._change("UPDATE log SET body = CAST('other' AS BLOB) WHERE seq = ?1", (seq,))

    def lose_row(self, table: str, run: str, name: str) -> None:
        """Remove a row from its table."""
        where = "number = ?1 AND run = (SELECT number FROM runs WHERE id = ?2)"
        is_signal = table == "signals"
        self._change(
            f"DELETE FROM {table} WHERE {where if is_signal else f'{_NAMED[table]} = ?1'}",
            (int(name), run) if is_signal else (name,),
        )

    def _change(self, sql: str, values: tuple[object, ...]) -> None:
        import apsw

        connection = apsw.Connection(str(self.path))
        connection.execute(sql, values)
        assert connection.changes() == 1
        connection.close()


_NAMED = {"keys": "key", "items": "id", "sessions": "id"}
_WIPED: list[str] = []
"""Schemas that are as good as new: making one takes as long as a dozen tests."""


class PostgresBench(Bench):
    """A schema of its own on the server that the tests share."""

    def __init__(self, clock: SteppingClock) -> None:
        from tests.servers.postgres import shared_url

        self._server = shared_url()
        self._schema = _WIPED.pop() if _WIPED else f"test_{secrets.token_hex(6)}"
        super().__init__(clock)

    @property
    def url(self) -> str:
        """Name the store."""
        return f"{self._server}?schema={self._schema}"

    def open(self) -> AnyStore:
        """Open the schema."""
        from ninelives.stores.postgres import PostgresStore

        return PostgresStore(self.url, clock=self.clock)

    def damage(self, run: str, seq: int) -> None:
        """Change a record in the table."""
        self._change(
            "UPDATE {}.records SET body = 'other' WHERE seq = %s"
            " AND run = (SELECT number FROM {}.runs WHERE id = %s)",
            (seq, run),
        )

    def lose_blob(self, digest: bytes) -> None:
        """Remove a blob from the table."""
        self._change("DELETE FROM {}.blobs WHERE digest = %s", (digest,))

    def lose_reference(self, run: str, digest: bytes) -> None:
        """Remove its row."""
        where = "run = (SELECT number FROM {}.runs WHERE id = %s) AND digest = %s"
        self._change(f"DELETE FROM {{}}.blob_runs WHERE {where}", (run, digest))

    def damage_log(self, seq: int) -> None:
        """Change an entry in the table."""
        self._change("UPDATE {}.log SET body = 'other' WHERE seq = %s", (seq,))

    def lose_row(self, table: str, run: str, name: str) -> None:
        """Remove a row from its table."""
        where = "number = %s AND run = (SELECT number FROM {}.runs WHERE id = %s)"
        is_signal = table == "signals"
        self._change(
            f"DELETE FROM {{}}.{table} WHERE {where if is_signal else f'{_NAMED[table]} = %s'}",
            (int(name), run) if is_signal else (name,),
        )

    def close(self) -> None:
        """Close all that was opened and empty the tables."""
        super().close()
        tables = (
            "runs",
            "records",
            "signals",
            "items",
            "keys",
            "waiters",
            "sessions",
            "blobs",
            "blob_runs",
            "documents",
            "counters",
        )
        wiping = [f"DELETE FROM {{}}.{table};" for table in (*tables, "writers", "log")]
        wiping.append(
            "UPDATE {}.log_head SET length = 0, base = 0, base_check = NULL, head = "
            f"'\\x{recovery_log.START.hex()}';"
        )
        self._change(" ".join(wiping) + "ALTER SEQUENCE {}.run_numbers RESTART", ())
        _WIPED.append(self._schema)

    def _change(self, text: str, values: tuple[object, ...]) -> None:
        from tests.servers.postgres import change

        assert change(text.replace("{}", self._schema), values) == 1 or not values


class RedisBench(Bench):
    """A prefix of its own on the server that the tests share."""

    def __init__(self, clock: SteppingClock) -> None:
        from tests.servers.valkey import shared_url

        self._prefix = f"test-{secrets.token_hex(6)}"
        self.url = f"{shared_url()}?prefix={self._prefix}"
        super().__init__(clock)

    def open(self) -> AnyStore:
        """Open the prefix."""
        from ninelives.stores.redis import RedisStore

        return RedisStore(self.url, clock=self.clock)

    def damage(self, run: str, seq: int) -> None:
        """Change a record in the list."""
        from ninelives.stores.redis.encoding import record_bytes, record_of

        name, client = self._names.journal(run), self._client
        raw = client.lindex(name, seq)
        client.lset(name, seq, record_bytes(replace(record_of(raw), body=b"other")))

    def lose_blob(self, digest: bytes) -> None:
        """Remove a blob."""
        assert self._client.delete(self._names.blob(digest)) == 1
        assert self._client.hdel(self._names.blobs, digest) == 1

    def lose_reference(self, run: str, digest: bytes) -> None:
        """Remove the count of the runs that refer to the blob: a set of each run's names it, too."""
        assert self._client.sismember(self._names.refers(run), digest)
        assert self._client.hdel(self._names.referred, digest) == 1

    def damage_log(self, seq: int) -> None:
        """Change an entry in the list."""
        from ninelives.stores.redis.encoding import entry_bytes, entry_of

        base = self._client.hget(self._names.store, "log-base") or b"0"
        at = seq - int(base.partition(b" ")[0])
        entry = entry_of(self._client.lindex(self._names.log, at))
        self._client.lset(self._names.log, at, entry_bytes(replace(entry, body=b"other")))

    def lose_row(self, table: str, run: str, name: str) -> None:
        """Remove a row from its hash; a signal that was taken is only counted there."""
        names, client = self._names, self._client
        if table == "signals":
            assert client.hdel(names.signals(run), name) or client.hset(names.sent(run), "n", 0) == 0
        else:
            assert client.hdel(getattr(names, table), name) == 1
            client.zrem(names.items_of(run), name)

    def close(self) -> None:
        """Close all that was opened and remove the keys."""
        from tests.servers.valkey import wipe

        super().close()
        wipe(self._prefix)

    @property
    def _names(self) -> Any:
        return self.store._pool.names  # type: ignore[attr-defined]

    @property
    def _client(self) -> Any:
        from tests.servers.valkey import behind

        return behind()


MAKERS: dict[str, Callable[[SteppingClock, Path], Bench]] = {
    "memory": lambda clock, _: MemoryBench(clock),
    "sqlite": SqliteBench,
    "postgresql": lambda clock, _: PostgresBench(clock),
    "redis": lambda clock, _: RedisBench(clock),
}


def make_bench(kind: str, clock: SteppingClock, directory: Path) -> Bench:
    """Open a fresh store of a kind."""
    return MAKERS[kind](clock, directory / "test.db")
