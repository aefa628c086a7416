"""One connection: statements go to libpq directly, prepared once, with values and rows in binary.

A single statement is one round trip. In a libpq pipeline, statements are sent without waiting, and their
answers come in the same order when they are fetched. So a transaction costs one round trip for each answer
that it waits for, and one for the COMMIT.

psycopg's cursors do the same for several times the CPU, and forget prepared statements at every ROLLBACK. See
docs/decisions/0013.
"""

from __future__ import annotations

import secrets
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import Any

import psycopg
from psycopg import generators
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from ninelives.stores.postgres.server.open_connection import Connection, is_lost
from ninelives.stores.postgres.server.queries import Statement, Values
from ninelives.stores.shared import rows

_IDLE, _OFF, _DONE = int(TransactionStatus.IDLE), int(PipelineStatus.OFF), int(ExecStatus.COMMAND_OK)
_GOOD = (_DONE, int(ExecStatus.TUPLES_OK))


class ServerAnswer:
    """The server's answer to one statement, once it has arrived."""

    __slots__ = ("_connection", "result")

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self.result: PGresult | None = None

    def fetchall(self) -> list[rows.Row]:
        """Wait for the answer, and return all its rows. Raises what went wrong here or before."""
        result = self.result
        while result is None:
            self._connection.receive()
            result = self.result
        return self._connection.rows_in(result)


class ServerConnection:
    """A connection, and the name of the row in which it counts its transactions."""

    def __init__(self, connection: Connection, *, is_pooled: bool) -> None:
        self.connection, self._is_pooled = connection, is_pooled
        self.name = secrets.token_hex(12)
        self._libpq = connection.pgconn
        self._transformer = Transformer(connection)
        self._prepared: set[bytes] = set()
        # Sent and not yet answered: they count as prepared only once the server has said so.
        self._preparing: set[bytes] = set()
        self._waiting: deque[ServerAnswer | bytes] = deque()
        self._is_flushed = True

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return self._libpq.transaction_status == _IDLE and self._libpq.pipeline_status == _OFF

    @property
    def is_lost(self) -> bool:
        """Whether it can no longer be used."""
        return is_lost(self.connection)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def ask(self, statement: Statement, values: Values) -> list[rows.Row]:
        """Run one statement that is a transaction by itself, and return its rows."""
        libpq, name = self._libpq, statement.name
        bound: list[Any] = statement.bound(values)  # None is NULL, which the driver's types do not allow
        # A pooler may give each statement another backend, which knows nothing that was prepared before.
        if name not in self._prepared and not self._is_pooled:
            return self._ask_first(statement, values)
        # libpq waits for the answer itself, at half the cost of psycopg's wait.
        self.connection.since = monotonic()
        try:
            if self._is_pooled:
                answer = libpq.exec_params(statement.text, bound, statement.types, statement.formats, 1)
            else:
                answer = libpq.exec_prepared(name, bound, statement.formats, 1)
        finally:
            self.connection.since = 0.0
        return self.rows_in(answer)

    def ask_after(
        self, first: Statement, first_values: Values, statement: Statement, values: Values
    ) -> list[rows.Row]:
        """Run two statements that are one transaction, and return the rows of the second.

        The second sees all that was durable when the first was done.
        """
        return self._ask_first(statement, values, (first, first_values))

    def _ask_first(
        self, statement: Statement, values: Values, before: tuple[Statement, Values] | None = None
    ) -> list[rows.Row]:
        self.enter_pipeline()
        try:
            if before is not None:
                # What is sent up to the pipeline's end is one transaction: no BEGIN, and no round trip more.
                self.send(*before)
            answer = self.send(statement, values)
            self.leave_pipeline()
            return answer.fetchall()
        except BaseException:
            if not self.is_lost:
                self._drain()
            raise

    def enter_pipeline(self) -> None:
        """Send without waiting from now on."""
        self._waiting.clear()
        self._preparing.clear()
        self._libpq.enter_pipeline_mode()

    def send(self, statement: Statement, values: Values) -> ServerAnswer:
        """Send a statement without waiting for its answer."""
        libpq, bound = self._libpq, statement.bound(values)
        if self._is_pooled:
            libpq.send_query_params(statement.text, bound, statement.types, statement.formats, 1)
        else:
            if statement.name not in self._prepared and statement.name not in self._preparing:
                libpq.send_prepare(statement.name, statement.text, statement.types)
                self._preparing.add(statement.name)
                self._waiting.append(statement.name)
            libpq.send_query_prepared(statement.name, bound, statement.formats, 1)
        answer = ServerAnswer(self)
        self._waiting.append(answer)
        self._is_flushed = False
        return answer

    def receive(self) -> None:
        """Wait for the next answer. Raises the error that it reports."""
        # In a pipeline the server answers when it must, not when it can:
        # without a request it may wait for more.
        if not self._is_flushed:
            self._libpq.send_flush_request()
            self._flush()
        results = self.connection.wait(generators.fetch_many(self._libpq))
        said = self._waiting.popleft()
        if isinstance(said, bytes):
            self._checked(results[-1])
            self._prepared.add(said)
        else:
            said.result = self._checked(results[-1])

    def leave_pipeline(self) -> None:
        """Wait for all answers. Raises the first error."""
        self._libpq.pipeline_sync()
        self._flush()
        while self._waiting:
            self.receive()
        self.connection.wait(generators.fetch_many(self._libpq))
        self._libpq.exit_pipeline_mode()

    def abandon(self, undo: Statement) -> None:
        """Roll back what was begun, if the connection is not lost."""
        if self.is_lost or self.is_idle:
            return
        try:
            self._drain()
            if not self.is_idle:
                self.ask(undo, ())
        except psycopg.Error:
            self.connection.close()

    def _drain(self) -> None:
        """Read all remaining answers, and keep of them only what the server has prepared."""
        if self._libpq.pipeline_status == PipelineStatus.OFF:
            return
        self._libpq.pipeline_sync()
        self._flush()
        while self._libpq.pipeline_status != PipelineStatus.OFF:
            results = self.connection.wait(generators.fetch_many(self._libpq))
            said = self._waiting.popleft() if results and self._waiting else None
            # A ROLLBACK does not undo it: prepared a second time, it would be refused.
            if isinstance(said, bytes) and results[-1].status in _GOOD:
                self._prepared.add(said)
            with suppress(psycopg.OperationalError):  # an answer is still outstanding
                self._libpq.exit_pipeline_mode()
        if self._waiting:  # an interrupted call has read an answer: whose were the others is unknown
            self.connection.close()

    def _flush(self) -> None:
        self.connection.wait(generators.send(self._libpq))
        self._is_flushed = True

    def rows_in(self, result: PGresult) -> list[rows.Row]:
        """Return the rows of an answer; for a statement that returns none, one row: the number changed.

        Raises the error that it reports.
        """
        # The hot path: an append returns no rows, how many it changed is in the answer's tag (decision 13).
        if result.status == _DONE:
            return [(result.command_tuples,)]
        self._checked(result)
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    def _checked(self, result: PGresult) -> PGresult:
        if result.status in _GOOD:
            return result
        if result.status == ExecStatus.PIPELINE_ABORTED:
            raise psycopg.errors.PipelineAborted("an earlier statement of the pipeline has failed")
        raise psycopg.errors.error_from_result(result, encoding="utf-8")
