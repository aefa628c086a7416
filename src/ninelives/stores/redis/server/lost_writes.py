"""Lineage: what this process saw acknowledged, and what to do when a server comes back without it.

Every write is counted in the store, and every acknowledgement returns the count. A server that is restarted,
or that takes over from another, has a new history; the first process to connect stores the count that it
begins with. If that is behind what this process saw, acknowledged writes are lost, perhaps with the intent of
an action that was done. Nothing is assumed then. Three kinds of runs are marked: those that were running,
those that this process had changed since, and those that hold a key of a non-resumable action. The next
worker that loads a marked run escalates it to a person, unless its owner continues from where it was, which
proves that nothing of the run is missing. Keys whose reservation is lost are in doubt.

A worker that has not reconnected yet may know of more. So nothing is claimed from a server with a new history
until every worker has connected, or its lease has run out.

What is lost together with all processes that saw it cannot be detected.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence

from msgspec import Struct

from ninelives.core.model.commit import Commit
from ninelives.core.model.key import Key, KeyState, ReserveKey
from ninelives.core.model.run import RunRow, State
from ninelives.stores.redis import encoding
from ninelives.stores.redis.run_rows import runs_in
from ninelives.stores.redis.transaction import Transaction
from ninelives.stores.shared.rows import texts

LOST = b"x"
"""The field of a run's row that holds the length at which it became doubtful."""
# Bounds the memory of a worker that runs for months; the oldest are forgotten first.
_MOST = 20_000
_HELD = (KeyState.RESERVED, KeyState.IN_DOUBT)
_log = logging.getLogger("ninelives.store")


class Moved(Struct, frozen=True):
    """What this process knows of a run: the count of the last write to it, its epoch and its length."""

    write: int
    epoch: int
    length: int


class Lineage:
    """What one store object saw acknowledged."""

    def __init__(self) -> None:
        self.history = ""
        self.seen = 0
        self.sessions: set[str] = set()
        self._runs: OrderedDict[str, Moved] = OrderedDict()
        self._keys: OrderedDict[str, tuple[int, str, ReserveKey]] = OrderedDict()
        self._lock = threading.Lock()

    def acknowledge(self, history: str, written: int) -> None:
        """Record the count that came with an answer of a server of that history."""
        with self._lock:
            # A late answer of the old server must not raise the count that the new one is measured by.
            if history == self.history:
                self.seen = max(self.seen, written)

    def committed(self, batch: Sequence[Commit]) -> None:
        """Record commits that have just been acknowledged."""
        with self._lock:
            for one in batch:
                self._move(one.run, one.epoch, one.new_length)
                for op in one.keys:
                    # Only these may not be repeated; a lost reservation of a resumable action is made again.
                    if isinstance(op, ReserveKey) and not op.resumable:
                        self._keys[op.key] = self.seen, one.run, op
            while len(self._keys) > _MOST:
                self._keys.popitem(last=False)

    def claimed(self, runs: Sequence[RunRow]) -> None:
        """Record runs that have just been claimed."""
        with self._lock:
            for run in runs:
                self._move(run.id, run.epoch, run.length)

    def _move(self, run: str, epoch: int, length: int) -> None:
        self._runs[run] = Moved(self.seen, epoch, length)
        self._runs.move_to_end(run)
        if len(self._runs) > _MOST:
            self._runs.popitem(last=False)

    def is_broken(self, began: int) -> bool:
        """Return whether a history that began with that many writes lacks what was acknowledged here."""
        return began < self.seen

    def renew(self, history: str, written: int) -> None:
        """Continue under this history."""
        with self._lock:
            self.seen = max(self.seen, written) if history == self.history else written
            self.history = history

    def mark(self, tx: Transaction, began: int) -> None:
        """Queue the response to a loss: mark doubtful runs, and put lost reservations in doubt."""
        with self._lock:
            runs = {name: moved for name, moved in self._runs.items() if moved.write > began}
            keys = {name: lost for name, lost in self._keys.items() if lost[0] > began}
        _log.error(
            "the server has lost acknowledged writes: it has %d of the %d that this process saw; "
            "runs that may lack something are escalated to a person",
            began,
            self.seen,
        )
        # Also what this process did not touch: other workers' losses may have died with them.
        suspects = _under_way(tx) | _holders(tx) | {run for _, run, _ in keys.values()} | set(runs)
        found = _read_rows(tx, sorted(suspects))
        for name, run in found.items():
            # A run that ended and is as we know it has lost nothing.
            if not run.state.is_final or _is_behind(run, runs.get(name)):
                # With its length: an owner that appends moves past
                # the mark, and so proves that nothing is missing.
                tx.do(b"HSET", tx.names.run(name), LOST, b"%d" % run.length)
        _doubt(tx, keys)
        tx.wakes = True


def _is_behind(run: RunRow, known: Moved | None) -> bool:
    return known is not None and (run.epoch, run.length) < (known.epoch, known.length)


def _under_way(tx: Transaction) -> set[str]:
    (found,) = tx.ask([(b"ZRANGE", tx.names.in_state(State.RUNNING), 0, -1)])
    return {name.decode() for name in found}


def _holders(tx: Transaction) -> set[str]:
    """Return the runs that hold a key of an action that must not be repeated."""
    found = set()
    for part in tx.scan(b"HSCAN", tx.names.keys):
        for raw in part[1::2]:
            key = encoding.key_of(raw)
            if key.state in _HELD and not key.resumable:
                found.add(key.run)
    return found


def _read_rows(tx: Transaction, names: Sequence[str]) -> dict[str, RunRow]:
    wanted = texts(names)
    if not wanted:
        return {}
    rows = tx.ask([(b"HMGET", tx.names.run(name), b"r", b"t") for name in wanted])
    return runs_in(zip(wanted, rows, strict=True))


def _doubt(tx: Transaction, lost: dict[str, tuple[int, str, ReserveKey]]) -> None:
    """Put keys whose reservation was lost in doubt: their action may have been done."""
    names = list(lost)
    rows = tx.fields([(tx.names.keys, name.encode()) for name in names]) if names else []
    for name, raw in zip(names, rows, strict=True):
        known = encoding.key_of(raw) if raw is not None else None
        # The key is held or settled: its reservation, or a later one, is there.
        if known is not None and known.state is not KeyState.FREE:
            continue
        _, run, op = lost[name]
        key = Key(
            key=name,
            action=op.action,
            fingerprint=op.fingerprint,
            run=run,
            resumable=False,
            state=KeyState.ORPHANED,  # the next run that asks for the key settles it
            generation=known.generation if known is not None else 0,
            body=b"",
            blobs=(),
            changed_ms=tx.now_ms,
        )
        tx.do(b"HSET", tx.names.keys, name.encode(), encoding.key_bytes(key))
        tx.do(b"SADD", tx.names.holds(run), name.encode())
