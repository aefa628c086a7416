"""Workers die, runs don't: real processes, real SIGKILL and SIGSTOP."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

import ninelives as nl
from ninelives.core.errors import StoreUnavailable
from ninelives.core.journal.answers import read_item_body
from ninelives.core.journal.recovery_log import Recovery
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.log_entry import Happening, NewEntry
from ninelives.core.model.run import NewRun, RunRow, State
from ninelives.core.model.session import Cause, NewSession
from ninelives.runtime import wakeups
from ninelives.stores.sqlite import SqliteStore
from tests.crash.stores import DURABLE, AnyStore, address, at, bury, open_at

PATIENCE_SECONDS = 60.0
ROOT = Path(__file__).parents[2]
Spawn = Callable[..., "subprocess.Popen[bytes]"]


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition, patiently."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


@contextmanager
def spawning(program: str, home: Path, ledger: Path) -> Iterator[Spawn]:
    """Yield what starts a worker process of a program; all are killed in the end."""
    with ExitStack() as stack:

        def start(*words: str, lease_seconds: float = 30.0) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", program, address(home), str(ledger), str(lease_seconds), *words]
            child = subprocess.Popen(command, cwd=ROOT)
            stack.callback(child.wait)
            stack.callback(child.kill)
            return child

        yield start


@pytest.fixture(params=["sqlite"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Yield a directory whose store is of a kind."""
    with at(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def store(home: Path) -> Iterator[AnyStore]:
    """Yield a store for the processes of a test."""
    opened = open_at(home)
    yield opened
    opened.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Return where the processes say what they do."""
    path = tmp_path / "ledger"
    path.touch()
    return path


@pytest.fixture
def spawn(home: Path, store: AnyStore, ledger: Path) -> Iterator[Spawn]:
    """Yield what starts a worker process; all are killed in the end."""
    with spawning("tests.workers.agents", home, ledger) as start:
        yield start


def create(store: AnyStore, *ids: str, agent: str) -> None:
    """Create runs of an agent that has no parameters."""
    store.create_runs([NewRun(id=one, agent=agent, fingerprint=b"f", body=b"{}") for one in ids])


def row(store: AnyStore, run: str) -> RunRow:
    """Return a run's row, which must be there."""
    found = store.read_run(run)
    assert found is not None
    return found


def stop_outside_writes(child: subprocess.Popen[bytes], store: AnyStore) -> None:
    """Stop a process where it does not hold up all writers: else nobody could take its runs."""
    assert isinstance(store, SqliteStore)
    impatient = SqliteStore(store.path, lock_timeout_seconds=0.2)
    while True:
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        try:
            impatient.append_log([NewEntry(kind=Happening.TAKEN, run="", session="test", body=b"{}")])
        except StoreUnavailable:
            os.kill(child.pid, signal.SIGCONT)
        else:
            break
    impatient.close()


@pytest.mark.parametrize("home", DURABLE, indirect=True)
def test_a_run_that_kills_every_worker_is_quarantined_and_the_innocent_complete(
    home: Path, store: AnyStore, spawn: Spawn
) -> None:
    create(store, "poison", agent="poison")
    create(store, *(f"innocent{n}" for n in range(5)), agent="innocent")
    codes = []
    for _ in range(5):
        codes.append(spawn().wait(PATIENCE_SECONDS))
        bury(home)
    assert codes == [-signal.SIGKILL] * 4 + [0]  # one beside others, one that makes it a suspect, two alone
    assert row(store, "poison").state is State.ESCALATED
    (item,) = store.list_inbox()
    asked = read_item_body(item)
    assert item.kind is ItemKind.QUARANTINE
    assert "out of lives: 4 workers died while they executed this run" in asked.what
    assert "during the last 2 it ran solo" in asked.what
    assert list(asked.evidence) == ["death 1", "death 2"]
    assert all("pid" in seen for seen in asked.evidence.values())
    assert {row(store, f"innocent{n}").state for n in range(5)} == {State.COMPLETED}
    assert store.verify() == []


async def last_recovery_of(store: AnyStore, run: str) -> str:
    """Return what a run's checkpoint says of how it was last recovered."""
    async with nl.Runtime(store) as rt:
        return (await (await rt.get(run)).checkpoint()).last_recovery


@pytest.mark.parametrize("home", DURABLE, indirect=True)
def test_a_killed_worker_is_replaced_at_once_and_the_recovery_is_told(
    home: Path, store: AnyStore, spawn: Spawn, ledger: Path
) -> None:
    create(store, "run", agent="endless")
    first = spawn("forever")
    until(lambda: ledger.read_text().count("begun") >= 3)
    second = spawn("forever")
    until(lambda: ledger.read_text().count("works") == 2)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    bury(home)
    until(lambda: row(store, "run").epoch >= 3)
    until(lambda: any(entry.kind is Happening.RECOVERED for entry in store.read_log(run="run")))
    entries = {entry.kind: entry for entry in store.read_log(run="run")}
    told = msgspec.json.decode(entries[Happening.RECOVERED].body, type=Recovery)
    assert told.cause is Cause.DIED
    assert told.left_by == entries[Happening.LEFT].session != entries[Happening.RECOVERED].session
    assert told.replayed >= 5
    assert told.tokens == 7 * told.decisions > 0
    assert told.verified.faults == ()
    assert told.progress_ms is not None
    assert " replayed" in asyncio.run(last_recovery_of(store, "run"))
    asked = [line for line in ledger.read_text().splitlines() if line.startswith("asked")]
    second.kill()
    assert len(asked) - len(set(asked)) <= 1  # what was under way may be asked again, what was recorded not


@pytest.mark.parametrize("home", DURABLE, indirect=True)
def test_a_worker_that_is_never_idle_takes_the_runs_of_a_lost_one(home: Path, store: AnyStore) -> None:
    @nl.agent(name="short")
    async def short() -> None:
        """End at once."""

    create(store, "lost", agent="short")
    store.register_session(NewSession(id="gone", host="elsewhere", pid=1, lease_ms=500))
    assert store.claim_runs("gone", 1, {"short": 1}).runs

    async def main() -> None:
        async with nl.Runtime(address(home)) as rt, asyncio.timeout(PATIENCE_SECONDS):
            working = asyncio.create_task(rt.work())
            while row(store, "lost").state is not State.COMPLETED:
                await (await rt.start(short)).result()  # there is always something to wake up for
            working.cancel()
            await asyncio.wait([working])

    asyncio.run(main())


def test_a_stopped_worker_that_wakes_past_its_lease_begins_nothing_and_ends(
    store: AnyStore, spawn: Spawn, ledger: Path
) -> None:
    create(store, "run", agent="endless")
    child = spawn("forever", lease_seconds=2.0)
    until(lambda: ledger.read_text().count("begun") >= 3)
    stop_outside_writes(child, store)
    until(lambda: store.end_sessions(None, Cause.DIED))
    before, length = ledger.read_text(), row(store, "run").length
    os.kill(child.pid, signal.SIGCONT)
    assert child.wait(PATIENCE_SECONDS) == 7
    later = ledger.read_text()[len(before) :].splitlines()
    assert len([line for line in later if not line.startswith("lost")]) <= 1  # admitted before it was stopped
    assert (row(store, "run").length, row(store, "run").session) == (length, None)


def test_a_result_from_another_process_comes_by_a_wake_up(
    store: AnyStore, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(store, SqliteStore)
    monkeypatch.setattr(wakeups, "LISTEN_SECONDS", 36_000.0)  # a poll would come too late for anybody
    create(store, "run", agent="innocent")

    async def main() -> object:
        async with nl.Runtime(store.url) as rt:
            waiting = asyncio.create_task((await rt.get("run")).result(timeout=PATIENCE_SECONDS))
            await asyncio.to_thread(until, lambda: len(list(sockets.glob("*.wake"))) == 1)
            spawn()
            return await waiting

    sockets = store.path.with_name(f"{store.path.name}-live")
    assert asyncio.run(main()) == 3
