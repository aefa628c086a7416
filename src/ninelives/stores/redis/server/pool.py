"""The lines to the server: a few connections, taken for one transaction each and given back.

A line that breaks is thrown away, and what was being done is done again on a new one, unless it was done
already. Before the script was sent nothing of it can be. After that nobody knows, so we look: a write notes
its line's count first of all, and who looks for it closes the line, so that a write which is still on its
way is refused when it arrives. If the server cannot be reached to look, `StoreBroken`: the process must end
and read again.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ninelives.core.clock import Clock
from ninelives.core.errors import LeaseLost, NineLivesError, StoreBroken, StoreUnavailable, StoreUnsafe
from ninelives.core.rules import validation
from ninelives.stores.clock import SystemClock
from ninelives.stores.redis.server.address import Address
from ninelives.stores.redis.server.connection import Command, LineLost, ServerConnection
from ninelives.stores.redis.server.key_names import Names
from ninelives.stores.redis.server.lost_writes import Lineage
from ninelives.stores.redis.server.scripts import script
from ninelives.stores.redis.server.server_checks import REPLICAS_REMEDY, Server, check
from ninelives.stores.redis.transaction import Conflict, Transaction
from ninelives.stores.shared.lease_witness import LeaseWitness

Answer = TypeVar("Answer")
Work = Callable[[Transaction], Answer]
_MOST_LINES, _TRIES, _MOST_CONFLICTS, _WAIT_MS = 6, 20, 400, 2_000
_PATIENCE_SECONDS, _DOUBT_SECONDS, _PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 5.0, 60.0, 0.05, 0.05
_HELD_UP = "a step waits for the server%s to sync what must not be forgotten: %s; given up after %d s"
_log = logging.getLogger("ninelives.store")


class Pool:
    """All lines of one store object."""

    def __init__(self, address: Address, clock: Clock | None) -> None:
        self.address = address
        self.names = Names(address.prefix)
        self.lineage = Lineage()
        self.server = Server()
        self.doubt_seconds = _DOUBT_SECONDS
        self._clock = clock
        self.witness = LeaseWitness(SystemClock().boot_ms if clock is None else None)
        self._pid = os.getpid()
        self._is_closed = False
        self._failure: StoreBroken | None = None
        self._idle: list[ServerConnection] = []
        self._turn, self._visiting = threading.Lock(), threading.Lock()
        self._places = threading.BoundedSemaphore(_MOST_LINES)

    def connect(self) -> ServerConnection:
        """Open a line of its own. Raises StoreUnavailable, StoreUnsafe.

        What the server says of itself counts from now on: it may have been started again with other settings.
        """
        line = ServerConnection(self.address)
        try:
            with self._visiting:  # one at a time, so that the last word is the newest
                self.server = check(line, self.address)
                self._visit(line, self.server.history)
        except LineLost as error:
            raise StoreUnavailable("Redis: the server hangs up as soon as it is reached") from error
        except BaseException:
            line.close()
            raise
        return line

    def _visit(self, line: ServerConnection, history: str) -> None:
        """See whether the server still has all that was acknowledged here, and see to it if not."""
        names, lineage = self.names, self.lineage
        line.history = history
        keys = [names.store, names.lineage, names.workers, names.awaited]
        written, began = line.call(script("takeover"), keys, [history, lineage.history])
        is_new = lineage.history not in ("", history)
        if is_new and lineage.is_broken(began):
            self._mark(line, began)
        lineage.renew(history, written)
        if is_new and lineage.sessions:
            line.call(script("arrive"), [names.awaited, names.work], sorted(lineage.sessions))

    def _mark(self, line: ServerConnection, began: int) -> None:
        for _ in range(_TRIES):
            tx = Transaction(line, self.names, self._clock, self.witness)
            self.lineage.mark(tx, began)
            # CRASH: not marked by us, who are dead now; what only we knew is lost with us.
            if not tx.is_changed or tx.apply()[0] == b"done":
                return
        raise StoreUnavailable("other writers are in the way again and again")

    @property
    def is_ours(self) -> bool:
        """Tell whether this process opened the lines."""
        return self._pid == os.getpid()

    def require(self) -> None:
        """Check that this process may use the lines.

        Raises StoreUnsafe in a forked child; StoreBroken after a write whose fate could not be told.
        """
        if not self.is_ours:
            raise StoreUnsafe(
                "this store was opened by the parent process",
                remedy="Open the store anew after fork; connections cannot be shared",
            )
        if self._is_closed:
            raise StoreUnavailable("this store has been closed", remedy="Open it again")
        if self._failure is not None:
            raise self._failure

    def begin(self) -> None:
        """Open the first line. Raises StoreUnavailable at once."""
        self._idle.append(self.connect())

    def read(self, work: Work[Answer]) -> Answer:
        """Do something that only reads, or that may be done twice without harm."""
        for _ in range(_TRIES):
            with self._line() as line:
                try:
                    return work(Transaction(line, self.names, self._clock, self.witness))
                except (LineLost, Conflict):
                    continue
        raise StoreUnavailable("connections to the server break as soon as they are made")

    def append(self, keys: Sequence[bytes], values: Sequence[bytes | str | int]) -> Any:
        """Append to journals, which made twice is harmless: the second time finds nothing to append to."""
        for _ in range(_TRIES):
            with self._line() as line:
                try:
                    answer = line.call(script("append"), keys, values)
                except LineLost:
                    continue
                if answer[0] != b"version":
                    self.lineage.acknowledge(line.history, answer[0])
                return answer
        raise StoreUnavailable("connections to the server break as soon as they are made")

    def write(self, work: Work[Answer]) -> Answer:
        """Run a writing transaction; durable when this returns."""
        try:
            return self._write(work)
        except LeaseLost:
            self.require_same(self.names.identity)  # a session is not known either where all was removed
            raise
        except StoreBroken as error:
            self._failure = error
            raise

    def require_same(self, known: bytes) -> None:
        """Raise StoreBroken if the store of that id is not there any more."""
        (found,) = self.read(lambda tx: tx.ask([(b"HGET", tx.names.store, b"id")]))
        if known not in (b"", found):
            what = "it was emptied" if found is None else "another one stands in its place"
            self._failure = validation.vanished(what)
            raise self._failure

    def _write(self, work: Work[Answer]) -> Answer:
        for conflicts in range(_MOST_CONFLICTS):
            with self._line() as line:
                tx = Transaction(line, self.names, self._clock, self.witness)
                try:
                    answer = work(tx)
                    if not tx.is_changed:
                        return answer
                except (LineLost, Conflict):
                    _pause(conflicts)
                    continue
                try:
                    what, written = tx.apply()
                    self.lineage.acknowledge(line.history, written)
                except LineLost:
                    # CRASH: the line broke after the script was sent; we look.
                    what = b""
            if what == b"done" or (not what and self._has_happened(line)):
                return answer
            _pause(conflicts)
        raise StoreUnavailable("other writers are in the way again and again")

    def confirmed(self) -> bool:
        """Wait until all that was written so far is synced, here and on as many replicas as asked for.

        False when the line broke meanwhile: the server may have lost it. Raises StoreBroken.
        """
        replicas, deadline = self.address.replicas, time.monotonic() + self.doubt_seconds
        others = f" and {replicas} replica{'s' * (replicas != 1)}" if replicas else ""
        is_told = False
        commands: list[Command] = [
            (b"HINCRBY", self.names.store, b"confirmed", 1),
            (b"WAITAOF", 1, replicas, _WAIT_MS),
        ]
        with self._line() as line:
            while True:
                try:
                    _, answer = line.ask(commands)
                except LineLost:
                    return False
                if isinstance(answer, list) and answer[0] >= 1 and answer[1] >= replicas:
                    return True
                if time.monotonic() >= deadline:
                    break
                if not is_told:
                    _log.warning(_HELD_UP, others, _synced(answer, replicas), self.doubt_seconds)
                    is_told = True
        remedy = f"{REPLICAS_REMEDY}; then" if replicas else "Mend the server's disk; then"
        self._failure = StoreBroken(
            f"what was written is not known to be synced by the server{others}: {_synced(answer, replicas)}",
            remedy=f"{remedy} start this process again",
        )
        raise self._failure

    def _has_happened(self, line: ServerConnection) -> bool:
        """Tell whether the last write of a line that broke was made; it will not be any more.

        Raises StoreBroken when it cannot be told.
        """
        deadline, values = time.monotonic() + self.doubt_seconds, (line.name, line.count)
        while True:
            try:
                return bool(self.read(lambda tx: tx.call("fate", [tx.names.writers], values)))
            except StoreUnavailable as error:
                if time.monotonic() < deadline and not self._is_closed:
                    continue
                self._failure = StoreBroken(
                    f"the answer to a write was lost and the server cannot be asked: {error.what}",
                    remedy="End this process and start it again when the server can be reached",
                )
                raise self._failure from error

    @contextmanager
    def _line(self) -> Iterator[ServerConnection]:
        self.require()
        with self._places:
            line = self._take()
            try:
                yield line
            except NineLivesError:
                raise  # an answer: the line is as it was
            except BaseException:
                line.close()  # an answer may still be on its way
                raise
            finally:
                self._give_back(line)

    def _take(self) -> ServerConnection:
        with self._turn:
            if self._idle:
                return self._idle.pop()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return self.connect()
            except StoreUnavailable:
                if time.monotonic() >= deadline or self._is_closed:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def _give_back(self, line: ServerConnection) -> None:
        with self._turn:
            if line.is_lost:
                # The others will not be better: a server that restarts drops them all.
                for other in self._idle:
                    other.close()
                self._idle.clear()
            elif self._is_closed:
                line.close()
            else:
                self._idle.append(line)

    def close(self) -> None:
        """Close the lines that are idle, and the others when they are given back."""
        with self._turn:
            self._is_closed = True
            for line in self._idle:
                line.close()
            self._idle.clear()


def _synced(answer: object, replicas: int) -> str:
    """Say what came of asking for a sync."""
    if not isinstance(answer, list):
        return str(answer)
    here = "the server has" if answer[0] else "the server has not"
    return f"{here}, and {answer[1]} of {replicas} replicas" if replicas else here


def _pause(conflicts: int) -> None:
    if conflicts:
        time.sleep(random.random() * min(_LONGEST_PAUSE_SECONDS, 0.0005 * 2 ** min(conflicts, 10)))
