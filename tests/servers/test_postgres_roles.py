"""What the server's administrator allows: rights, read-only roles, time limits, and how many connections."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from ninelives.core.errors import StoreAway, StoreUnavailable
from ninelives.core.model.run import State
from ninelives.stores.postgres import PostgresStore
from ninelives.stores.postgres.server.open_connection import Connection
from ninelives.stores.postgres.server.session_locks import lock_number
from ninelives.stores.postgres.transaction import Transaction
from tests.contract.makers import new_run
from tests.servers.postgres import change, shared_url
from tests.servers.scene import until

AGENTS = """
import ninelives as nl

@nl.agent
async def hello() -> str:
    return "hello"
"""


class Role:
    """A role that may log in and nothing else, and a name for a schema."""

    def __init__(self) -> None:
        self.name = self.schema = f"role_{secrets.token_hex(6)}"
        self.url = f"{shared_url().replace('postgres@', f'{self.name}@')}?schema={self.schema}"
        change(f"CREATE ROLE {self.name} LOGIN")

    def own_schema(self) -> None:
        """Give it a schema of its own, as an administrator does who lets nobody make schemas."""
        change(f"CREATE SCHEMA {self.schema} AUTHORIZATION {self.name}")

    def change(self, text: str) -> None:
        """Change the role."""
        change(f"ALTER ROLE {self.name} {text}")

    def remove(self) -> None:
        """Remove it and what it owns."""
        change(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")
        change(f"DROP OWNED BY {self.name} CASCADE")
        change(f"DROP ROLE {self.name}")


@pytest.fixture
def role() -> Iterator[Role]:
    """Yield a role of its own on the shared server."""
    made = Role()
    yield made
    made.remove()


def test_a_role_that_has_only_its_schema_is_enough(role: Role) -> None:
    role.own_schema()
    store = PostgresStore(role.url)
    store.create_runs([new_run("r1")])
    assert store.verify() == []
    store.close()


def test_a_role_that_may_make_no_schema_is_told_which_right_it_lacks(role: Role) -> None:
    with pytest.raises(StoreUnavailable) as refused:
        PostgresStore(role.url)
    assert f'GRANT CREATE ON DATABASE "postgres" TO "{role.name}"' in str(refused.value)
    assert f'CREATE SCHEMA "{role.schema}" AUTHORIZATION "{role.name}"' in str(refused.value)


@pytest.mark.parametrize("is_made", [False, True], ids=["empty", "a store"])
def test_a_schema_of_another_role_is_said_to_be_so(role: Role, *, is_made: bool) -> None:
    change(f"CREATE SCHEMA {role.schema}")
    if is_made:
        PostgresStore(f"{shared_url()}?schema={role.schema}").close()
    with pytest.raises(StoreUnavailable, match="has another owner"):
        PostgresStore(role.url)


def test_a_role_that_may_only_read_is_told_so(role: Role) -> None:
    role.own_schema()
    role.change("SET default_transaction_read_only = on")
    with pytest.raises(StoreUnavailable, match="default_transaction_read_only = off"):
        PostgresStore(role.url)


def test_a_role_that_has_too_little_time_is_told_so(role: Role) -> None:
    role.own_schema()
    role.change("SET statement_timeout = '1s'")
    with psycopg.connect(shared_url()) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(role.schema, "migration"),))
        with pytest.raises(StoreUnavailable, match="statement_timeout = 0"):
            PostgresStore(role.url)


def test_who_finds_no_room_on_the_server_may_wait_and_is_told_what_is_full(role: Role) -> None:
    role.own_schema()
    role.change("CONNECTION LIMIT 0")
    with pytest.raises(StoreAway, match="Raise max_connections or the role's limit"):
        PostgresStore(role.url)


def test_a_store_that_gets_no_more_connections_goes_on_with_those_it_has(
    role: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    role.own_schema()
    role.change("CONNECTION LIMIT 1")
    store = PostgresStore(role.url)
    is_taken, is_refused = threading.Event(), threading.Event()
    connect = store._pool.connect

    def refused(*, is_direct: bool = True) -> Connection:
        try:
            return connect(is_direct=is_direct)
        except StoreAway:
            is_refused.set()
            raise

    def hold(_: Transaction) -> None:
        is_taken.set()
        assert is_refused.wait(60)

    monkeypatch.setattr(store._pool, "connect", refused)
    with ThreadPoolExecutor(5) as threads:
        held = threads.submit(store._pool.write, hold)
        assert is_taken.wait(60)
        made = list(threads.map(lambda n: store.create_runs([new_run(f"r{n}")]), range(4)))
        held.result(60)
    assert len(made) == 4
    store.close()


@pytest.mark.parametrize("room", [2, 3], ids=["to open the store", "to begin a session"])
def test_a_worker_that_finds_no_room_waits_for_it_and_does_not_end(
    role: Role, tmp_path: Path, room: int
) -> None:
    role.own_schema()
    PostgresStore(role.url).close()
    role.change(f"CONNECTION LIMIT {room}")  # the supervisor takes two
    (tmp_path / "agents.py").write_text(AGENTS, encoding="utf-8")
    admin = PostgresStore(f"{shared_url()}?schema={role.schema}")
    admin.create_runs([new_run("r1", agent="hello")])
    command = [sys.executable, "-m", "ninelives", "up", "agents.py", "--processes", "1", "--store", role.url]
    said: list[str] = []
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said.append(line)
                if "worker 1: waiting" in line or "exited" in line:
                    break
            assert "waiting" in said[-1], said
            role.change("CONNECTION LIMIT 20")
            until(lambda: (run := admin.read_run("r1")) is not None and run.state is State.COMPLETED)
        finally:
            process.terminate()
            said += process.stdout
    admin.close()
    assert not [line for line in said if "exited" in line], said
    assert "Raise max_connections" in "".join(said)
