"""Transactional actions: effect and record commit together in the user's own database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import ninelives as nl
from tests.replay.lifetimes import QuickStore, Stage, once, twice

Connect = Callable[[], Any]


def by_sqlite3(path: Path) -> Connect:
    return lambda: sqlite3.connect(path)


def by_apsw(path: Path) -> Connect:
    return lambda: apsw.Connection(str(path))


@pytest.fixture(params=[by_sqlite3, by_apsw], ids=["sqlite3", "apsw"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    """Return what gives connections to a database with a table of accounts."""
    made: Connect = request.param(tmp_path / "accounts.db")
    conn = made()
    conn.execute("CREATE TABLE paid (order_id TEXT, cents INTEGER)")
    conn.close()
    return made


def rows(connect: Connect, query: str = "SELECT order_id, cents FROM paid") -> list[Any]:
    conn = connect()
    try:
        return [tuple(row) for row in conn.execute(query).fetchall()]
    finally:
        conn.close()


def test_effect_and_record_commit_together(connect: Connect) -> None:
    @nl.action(name="pay", transaction=connect)
    async def pay(conn: Any, order: str, cents: int = 3) -> int:
        conn.execute("INSERT INTO paid VALUES (?, ?)", (order, cents))
        return cents

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay("a") + await pay("b", cents=4)

    assert once(agent, id="run") == 7
    assert rows(connect) == [("a", 3), ("b", 4)]
    done = rows(connect, "SELECT key, value FROM ninelives_done ORDER BY key")
    assert done == [("nl:run:0::pay:0", "3"), ("nl:run:0::pay:1", "4")]


def test_committed_there_and_not_recorded_here_is_found_by_the_row(connect: Connect) -> None:
    stage, bodies = Stage(), []

    @nl.action(name="pay", transaction=connect)
    def pay(conn: Any, order: str) -> str:
        bodies.append(order)
        conn.execute("INSERT INTO paid VALUES (?, 1)", (order,))
        return f"paid {order}"

    @nl.agent(name="payer")
    def agent() -> str:
        return pay("a")

    assert once(agent, id="run") == "paid a"
    # The same run in a store that has lost its journal: only the user's database knows.
    assert once(agent, store=QuickStore(), id="run") == "paid a"
    assert (bodies, rows(connect)) == (["a"], [("a", 1)])
    assert stage.executed == []


def test_what_was_not_committed_is_done_again(connect: Connect) -> None:
    stage = Stage()

    @nl.action(name="pay", transaction=connect)
    async def pay(conn: Any, order: str) -> str:
        conn.execute("INSERT INTO paid VALUES (?, 1)", (order,))
        stage.did(order)
        await stage.stop_here()
        return "paid"

    @nl.agent(name="payer")
    async def agent() -> str:
        return await pay("a")

    assert twice(stage, agent) == "paid"
    assert (stage.executed, rows(connect)) == (["a"], [("a", 1)])


def test_a_body_that_fails_leaves_nothing(connect: Connect) -> None:
    @nl.action(name="pay", transaction=connect)
    def pay(conn: Any) -> None:
        conn.execute("INSERT INTO paid VALUES ('a', 1)")
        raise ValueError("no")

    @nl.agent(name="payer")
    def agent() -> str:
        try:
            pay()
        except ValueError as error:
            return str(error)
        return "paid"

    assert once(agent) == "no"
    assert rows(connect) == []


def test_a_body_that_commits_by_itself_is_refused_and_not_repeated(connect: Connect) -> None:
    bodies: list[int] = []

    @nl.action(name="pay", transaction=connect)
    def pay(conn: Any) -> None:
        bodies.append(1)
        conn.execute("INSERT INTO paid VALUES ('a', 1)")
        conn.execute("COMMIT")

    @nl.agent(name="payer")
    def agent() -> str:
        try:
            pay()
        except (nl.UsageError, nl.InDoubt) as error:
            return str(error)
        return "paid"

    assert "ended the transaction" in once(agent, id="run")
    assert "ended its transaction by itself" in once(agent, store=QuickStore(), id="run")
    assert bodies == [1]


def test_a_connection_may_be_lent(connect: Connect) -> None:
    lent = connect()

    @contextmanager
    def lend() -> Iterator[Any]:
        yield lent

    @nl.action(name="pay", transaction=lend)
    async def pay(conn: Any) -> None:
        conn.execute("INSERT INTO paid VALUES ('a', 1)")

    @nl.agent(name="payer")
    async def agent() -> None:
        await pay()
        await pay()

    once(agent)
    assert lent.execute("SELECT count(*) FROM paid").fetchall()[0][0] == 2
    lent.close()


def test_a_busy_connection_is_refused(connect: Connect) -> None:
    @contextmanager
    def lend() -> Iterator[Any]:
        conn = connect()
        conn.execute("BEGIN")
        try:
            yield conn
        finally:
            conn.close()

    @nl.action(name="pay", transaction=lend)
    async def pay(conn: Any) -> None:
        raise AssertionError

    @nl.agent(name="payer")
    async def agent() -> None:
        await pay()

    with pytest.raises(nl.RunFailed, match="in a transaction already"):
        once(agent)


def test_a_business_key_names_the_row(connect: Connect) -> None:
    store = QuickStore()

    @nl.action(name="pay", transaction=connect, key="pay:{order}")
    async def pay(conn: Any, order: str) -> str:
        conn.execute("INSERT INTO paid VALUES (?, 1)", (order,))
        return "paid"

    @nl.agent(name="payer")
    async def agent() -> str:
        return await pay("a")

    assert [once(agent, store=store, id=run) for run in ("one", "two")] == ["paid", "paid"]
    assert rows(connect) == [("a", 1)]
    assert rows(connect, "SELECT key FROM ninelives_done") == [("pay:a",)]


def test_without_a_runtime_the_body_still_gets_its_transaction(connect: Connect) -> None:
    @nl.action(name="pay", transaction=connect)
    def pay(conn: Any, order: str) -> str:
        conn.execute("INSERT INTO paid VALUES (?, 1)", (order,))
        return order

    assert pay("a") == "a"
    assert rows(connect) == [("a", 1)]


def test_declarations_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(nl.UsageError, match="first parameter is not conn"):

        @nl.action(name="pay", transaction=lambda: None)
        def pay(order: str) -> None: ...

    declare: Any = nl.action
    with pytest.raises(nl.UsageError, match="resumable=False adds nothing"):
        declare(name="pay", transaction=lambda: None, resumable=False)(lambda conn: None)


def test_inside_another_step_it_is_refused(connect: Connect) -> None:
    @nl.action(name="pay", transaction=connect)
    async def pay(conn: Any) -> None:
        raise AssertionError

    @nl.action(name="outer")
    async def outer() -> None:
        await pay()

    @nl.agent(name="payer")
    async def agent() -> None:
        await outer()

    with pytest.raises(nl.RunFailed, match="has a transaction of its own"):
        once(agent)
