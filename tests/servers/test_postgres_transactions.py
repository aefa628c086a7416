"""Transactional actions in the user's own PostgreSQL database: the effect and its record commit together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import ninelives as nl
from ninelives.stores.clock import SystemClock
from ninelives.stores.memory import MemoryStore
from tests.servers import postgres

Opening = Callable[[], Any]


def by_connection() -> Any:
    return psycopg.connect(postgres.shared_url())


def by_autocommit() -> Any:
    return psycopg.connect(postgres.shared_url(), autocommit=True)


def by_async_connection() -> Any:
    return psycopg.AsyncConnection.connect(postgres.shared_url())


@pytest.mark.parametrize("opening", [by_connection, by_autocommit, by_async_connection])
def test_a_row_in_postgresql_is_written_once(opening: Opening) -> None:
    table = f"sold_{opening.__name__}"
    postgres.change(f"DROP TABLE IF EXISTS {table}")
    postgres.change(f"CREATE TABLE {table} (item TEXT)")
    postgres.change("DROP TABLE IF EXISTS ninelives_done")
    bodies: list[str] = []

    @nl.action(name="sell", transaction=opening, key="sell:{item}", retry=nl.Retry(base_seconds=0))
    async def sell(conn: Any, item: str) -> str:
        made = conn.execute(f"INSERT INTO {table} VALUES ('{item}')")
        if opening is by_async_connection:
            await made
        bodies.append(item)
        if len(bodies) == 1:
            raise nl.Transient("taken back, and done again")
        return f"sold {item}"

    @nl.agent(name="seller")
    async def seller() -> str:
        return await sell("hat")

    async def once() -> Any:
        async with nl.Runtime(MemoryStore(SystemClock())) as rt:
            return await rt.run(seller, id="r")

    assert asyncio.run(once()) == "sold hat"
    assert asyncio.run(once()) == "sold hat"  # a store that knows nothing of it: the row answers
    assert bodies == ["hat", "hat"]
    with psycopg.connect(postgres.shared_url()) as conn:
        assert conn.execute(f"SELECT item FROM {table}".encode()).fetchall() == [("hat",)]
