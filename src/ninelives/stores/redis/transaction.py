"""An optimistic transaction: it records its reads and queues its writes; both go out together.

The script compares everything that was read with what is there now, and writes all or nothing. If something
has changed meanwhile, the transaction is run again from the start (see pool.py). Collections (a run's
signals, a run's items) are not compared. Each is guarded by a row that is read first, and that every change
of the collection changes too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from redis.exceptions import RedisError

from ninelives.core.clock import Clock
from ninelives.core.errors import SchemaMismatch
from ninelives.core.rules import validation
from ninelives.stores.redis.server.connection import Command, ServerConnection, translate
from ninelives.stores.redis.server.key_names import Names
from ninelives.stores.redis.server.scripts import VERSION, script
from ninelives.stores.shared.sessions import ObservedLeases

Write = tuple[bytes, bytes, bytes | int | str, bytes | int | str]
_NAMING = frozenset({b"LESS", b"REFER", b"FORGET"})
"""Verbs whose last value is a key."""


PART = 200
"""How many rows are read at once where there may be very many."""


class Conflict(Exception):
    """Another process has changed something that was read."""


class Transaction:
    """What was read, what to write, and whether to wake workers or output readers."""

    __slots__ = (
        "_checks",
        "_clock",
        "_connection",
        "_present",
        "_time",
        "_writes",
        "emits",
        "frees",
        "leases",
        "names",
        "wakes",
    )

    def __init__(
        self,
        connection: ServerConnection,
        names: Names,
        clock: Clock | None,
        leases: ObservedLeases | None = None,
    ) -> None:
        self._connection, self.names, self._clock = connection, names, clock
        self.leases = leases or ObservedLeases(None)
        self._checks: dict[tuple[bytes, bytes], bytes | None] = {}
        self._present: set[tuple[bytes, bytes]] = set()
        self._writes: list[Write] = []
        self._time: int | None = None
        self.wakes = self.emits = self.frees = False

    @property
    def now_ms(self) -> int:
        """The store's wall clock when the transaction first asked for something."""
        if self._clock is not None:
            return self._clock.now_ms()
        if self._time is None:
            self.ask([])
        return self._time or 0

    @property
    def boot_ms(self) -> int:
        """The clock that leases are judged by: the server's."""
        return self._clock.boot_ms() if self._clock is not None else self.now_ms

    @property
    def given_now_ms(self) -> int | None:
        """The time to write, or None if the server should use its own."""
        return self._clock.now_ms() if self._clock is not None else None

    @property
    def mark(self) -> bytes:
        """A value that no other write has used."""
        return b"%b %d" % (self._connection.name, self._connection.count + 1)

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._writes)

    # Reading ------------------------------------------------------------------------------------

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Read in one round trip what is not compared later. Raises ConnectionLost, StoreError."""
        is_first = self._time is None and self._clock is None
        answers = self._connection.ask([*commands, (b"TIME",)] if is_first else commands)
        for answer in answers:
            if isinstance(answer, RedisError):
                raise translate(answer) from answer
        if is_first:
            seconds, micros = answers.pop()
            self._time = int(seconds) * 1000 + int(micros) // 1000
        return answers

    def scan(self, command: bytes, key: bytes) -> Iterator[list[bytes]]:
        """Iterate over a large hash or set in parts."""
        cursor: bytes | int = 0
        while True:
            ((cursor, part),) = self.ask([(command, key, cursor, b"COUNT", PART)])
            yield part
            if int(cursor) == 0:
                return

    def note_time(self, now_ms: int) -> None:
        """Use the time that a script has returned."""
        self._time = now_ms

    def call(self, name: str, keys: Sequence[bytes], values: Sequence[bytes | str | int]) -> Any:
        """Run a script that only reads."""
        return self._connection.call(script(name), keys, values)

    def fields(self, wanted: Sequence[tuple[bytes, bytes]]) -> list[bytes | None]:
        """Read fields that must be unchanged when we write. Raises Conflict if one has changed already."""
        found: list[bytes | None] = self.ask([(b"HGET", key, field) for key, field in wanted])
        for pair, value in zip(wanted, found, strict=True):
            if self._checks.setdefault(pair, value) != value:
                raise Conflict
        return found

    def expect(self, key: bytes, field: bytes, value: bytes | None) -> None:
        """Record a value that was read in another way and must be unchanged when we write."""
        if self._checks.setdefault((key, field), value) != value:
            raise Conflict

    def require(self, key: bytes, field: bytes) -> None:
        """Write only if a field exists, whatever its value."""
        self._present.add((key, field))

    # Writing ------------------------------------------------------------------------------------

    def do(
        self, verb: bytes, key: bytes, first: bytes | int | str = b"", second: bytes | int | str = b""
    ) -> None:
        """Queue a write; see `apply.lua`."""
        self._writes.append((verb, key, first, second))

    def apply(self) -> tuple[bytes, int]:
        """Write everything queued, if everything that was read is unchanged; return the outcome.

        Raises ConnectionLost when the outcome is unknown; SchemaMismatch, StoreBroken, StoreError when
        nothing was written.
        """
        names = self.names
        keys = {names.store: 1, names.writers: 2, names.work: 3, names.output: 4}

        def number(key: bytes) -> int:
            return keys.setdefault(key, len(keys) + 1)

        checks: list[bytes | int | str] = []
        for (key, field), value in self._checks.items():
            checks += (number(key), field, b"-", b"") if value is None else (number(key), field, b"=", value)
        for key, field in self._present:
            checks += (number(key), field, b"+", b"")
        writes: list[bytes | int | str] = []
        for verb, key, first, second in self._writes:
            last = number(second) if verb in _NAMING and isinstance(second, bytes) else second
            writes += (verb, number(key), first, last)
        connection = self._connection
        connection.count += 1
        woken = (int(self.wakes), int(self.wakes or self.emits))
        head = (VERSION + b" " + names.identity, connection.name, connection.count, *woken, len(checks) // 4)
        what, written = connection.call(
            script("apply", frees=self.frees), list(keys), [*head, *checks, *writes]
        )
        if what == b"version":
            raise mismatch()
        if what == b"gone":
            raise validation.vanished("it was emptied, or another store has replaced it")
        return what, written


def mismatch() -> SchemaMismatch:
    """Return the error for data of another schema version."""
    return SchemaMismatch(
        "another process has migrated the store to another schema version",
        remedy="End this process and start it with the version of ninelives that wrote the data",
    )
