"""Servers that are not there yet, or do not let us in: who waits for them, who does not, what is said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from redis import Redis

from ninelives.core.errors import StoreAway, StoreUnavailable
from ninelives.stores.open import open_store
from tests.servers.postgres import PostgresServer, free_port, quick_directory
from tests.servers.scene import until
from tests.servers.valkey import ValkeyServer

PATIENCE_SECONDS = 120
AGENTS = """
import asyncio, time
from pathlib import Path
import ninelives as nl

if Path("slow").exists():
    Path("reached").touch()
    while not Path("go").exists():
        time.sleep(0.01)

@nl.agent
async def hello() -> str:
    return "hello"

@nl.action
async def hold() -> str:
    Path("reached").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "held"

@nl.agent
async def asks() -> str:
    return await nl.ask("now?")

@nl.agent
async def held() -> str:
    return await hold()
"""
Server = PostgresServer | ValkeyServer


@pytest.fixture(params=[PostgresServer, ValkeyServer])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Yield a server of its own."""
    make: Callable[[Path | None], Server] = request.param
    made = make(quick_directory())
    yield made
    made.remove()


def test_up_waits_for_a_server_that_is_not_there_yet_and_other_commands_do_not(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "agents.py").write_text(AGENTS, encoding="utf-8")
    command = [sys.executable, "-m", "ninelives"]
    server.kill()
    told = subprocess.run(
        [*command, "ps", "--store", server.url],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert told.returncode == 4
    assert "Check that the server runs" in told.stderr
    with subprocess.Popen(
        [*command, "up", "agents.py", "--processes", "1", "--store", server.url],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        assert "waiting for it" in lines[0]
        server.start()
        for line in process.stdout:
            if "is ready" in line:
                process.terminate()
    assert process.returncode == 0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a directory with agents that may be held, when they are loaded or at work."""
    (tmp_path / "agents.py").write_text(AGENTS, encoding="utf-8")
    return tmp_path


def test_up_waits_for_a_server_that_goes_away_before_its_first_worker_is_ready(
    server: Server, home: Path
) -> None:
    (home / "slow").touch()
    with subprocess.Popen(
        [sys.executable, "-m", "ninelives", "up", "agents.py", "--processes", "1", "--store", server.url],
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        until((home / "reached").exists)
        server.kill()
        (home / "go").touch()
        assert process.stdout is not None
        for line in process.stdout:
            if "waiting: " in line:  # the worker itself, until the server is there
                server.start()
            elif "is ready" in line:
                process.terminate()
    assert process.returncode == 0


def test_up_gives_up_a_server_that_stays_away(home: Path) -> None:
    script = f"""
from ninelives.stores.clock import SystemClock
from ninelives.stores.memory import MemoryStore
from ninelives.supervisor.supervisor import Supervisor
from ninelives.supervisor.protocol import WorkerSettings
settings = WorkerSettings(target="agents.py", url="redis://127.0.0.1:{free_port()}/0", patience_seconds=0)
clock = SystemClock()
show = lambda _, line: print(line)
supervisor = Supervisor(settings, MemoryStore(clock), clock, report=print, on_output=show)
raise SystemExit(supervisor.run())
"""
    told = subprocess.run(
        [sys.executable, "-c", script],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert told.returncode == 4, told.stderr
    assert "StoreAway" in told.stdout


def test_run_waits_for_a_server_that_goes_away_in_the_middle(server: Server, home: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "ninelives", "run", "agents.py:held", "--id", "a", "--store", server.url],
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until((home / "reached").exists)
        server.kill()
        assert process.stderr is not None
        assert any("paused: " in line for line in process.stderr)  # reads up to that line
        server.start()
        (home / "go").touch()
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (0, '"held"\n'), err


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """Yield a PostgreSQL server that asks `guest` for a password: its host and port."""
    made = PostgresServer(quick_directory())
    allowed = made.root / "data" / "pg_hba.conf"
    rules = "host all guest 127.0.0.1/32 scram-sha-256\nhost all stranger 127.0.0.1/32 reject\n"
    allowed.write_text(rules + allowed.read_text())
    made.kill()
    made.start()
    with psycopg.connect(made.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE guest LOGIN PASSWORD 'right'")
    yield f"127.0.0.1:{made.port}"
    made.remove()


@pytest.mark.parametrize(
    ("who", "database", "remedy"),
    [
        ("postgres", "nowhere", "Create the database"),
        ("nobody", "postgres", "Create the role"),
        ("guest:wrong", "postgres", "Give the right user and password"),
        ("stranger", "postgres", "pg_hba.conf"),
        ("guest:right", "postgres", 'GRANT CREATE ON DATABASE "postgres" TO "guest"'),
    ],
)
def test_who_is_not_let_in_by_postgresql_is_told_what_to_do(
    guarded: str, who: str, database: str, remedy: str
) -> None:
    with pytest.raises(StoreUnavailable, match="Nothing was written") as refused:
        open_store(f"postgresql://{who}@{guarded}/{database}")
    assert not isinstance(refused.value, StoreAway)
    assert remedy in str(refused.value)


@pytest.mark.parametrize(
    ("who", "database", "remedy"),
    [
        ("", "0", "Give the right user and password"),
        (":wrong@", "0", "Give the right user and password"),
        ("stranger:right@", "0", "Give the right user and password"),
        (":right@", "99", "Name a database that the server has"),
    ],
)
def test_who_is_not_let_in_by_redis_is_told_what_to_do(
    locked: ValkeyServer, who: str, database: str, remedy: str
) -> None:
    with pytest.raises(StoreUnavailable, match="Nothing was written") as refused:
        open_store(f"redis://{who}127.0.0.1:{locked.port}/{database}")
    assert not isinstance(refused.value, StoreAway)
    assert remedy in str(refused.value)


def test_a_redis_database_is_shown_however_the_url_names_it(locked: ValkeyServer) -> None:
    store = open_store(f"redis://:right@127.0.0.1:{locked.port}?db=3&prefix=shown")
    store.close()
    assert store.url == f"redis://127.0.0.1:{locked.port}/3?prefix=shown"


@pytest.fixture(scope="module")
def locked() -> Iterator[ValkeyServer]:
    """Yield a Valkey server that asks for a password."""
    made = ValkeyServer(quick_directory())
    with Redis(port=made.port) as client:
        client.config_set("requirepass", "right")
    yield made
    made.remove()


def test_what_a_run_says_to_do_next_shows_no_password(locked: ValkeyServer, home: Path) -> None:
    url = f"redis://:right@127.0.0.1:{locked.port}/0?prefix=hints"
    told = subprocess.run(
        [sys.executable, "-m", "ninelives", "run", "agents.py:asks", "--id", "a", "--store", url],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert told.returncode == 3, told.stderr
    assert "right" not in told.stdout + told.stderr
    for what in ("answer with: ninelives resolve", "inspect it with: ninelives show a", "then resume it"):
        (line,) = [one for one in told.stderr.splitlines() if what in one]
        assert '--store "$NINELIVES_STORE"' in line


@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
def test_a_server_that_is_not_there_may_be_waited_for(scheme: str) -> None:
    with pytest.raises(StoreAway):
        open_store(f"{scheme}://127.0.0.1:{free_port()}/0")
