"""`ninelives export`, `import` and `move`, as an operator calls them, killed and called again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ninelives.core.model.run import RunRow, State
from ninelives.ops.transfer.export import export
from ninelives.ops.transfer.importing import import_file
from ninelives.stores.sqlite import SqliteStore
from tests.clocks import SteppingClock
from tests.contract.benches import make_bench
from tests.crash.killing import KillingStore, KillPoint
from tests.transfer.test_moves import busy

AGENT = """
import ninelives as nl

@nl.action
async def pay(number: int) -> int:
    with open("paid", "a") as file:
        file.write(f"{nl.key()}\\n")
    return number

@nl.agent
async def shop(count: int) -> str:
    for number in range(count):
        await pay(number)
    word = await nl.receive("go", type=str)
    for number in range(count, 2 * count):
        await pay(number)
    return word
"""


def command(home: Path, *words: str, code: int = 0) -> str:
    """Run a command in a directory; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "ninelives", *words],
        cwd=home,
        env={**os.environ, "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout + done.stderr


def until(store: SqliteStore, run: str, state: State) -> RunRow:
    """Wait until a run is in a state."""
    for _ in range(600):
        row = store.read_run(run)
        if row is not None and row.state is state:
            return row
        store.wait_for_work(0.1)
    raise AssertionError(f"{run} is {store.read_run(run)}")


def test_runs_move_in_the_middle_under_load_and_nothing_is_done_twice(tmp_path: Path) -> None:
    """Workers are at work on both stores all the time; runs are moved while they wait, and while they run."""
    (tmp_path / "agent.py").write_text(AGENT)
    urls = ("sqlite:///here.db", "sqlite:///there.db")
    stores = [SqliteStore(tmp_path / name) for name in ("here.db", "there.db")]
    up = [sys.executable, "-m", "ninelives", "up", "agent.py", "--processes", "1", "--store"]
    workers = [subprocess.Popen([*up, url], cwd=tmp_path, stderr=subprocess.DEVNULL) for url in urls]
    runs = [f"order-{number}" for number in range(6)]
    try:
        for run in runs:
            command(tmp_path, "start", "agent.py:shop", "3", "--id", run, "--store", urls[0])
        until(stores[0], runs[0], State.CHECKPOINTED)
        said = command(tmp_path, "move", *runs, "--to", urls[1], "--store", urls[0])
        assert f"{runs[0]}: moved to {urls[1]}" in said
        assert "moved to sqlite" in command(tmp_path, "ps", "--store", urls[0])
        refused = command(tmp_path, "signal", runs[0], "go", '"yes"', "--store", urls[0], code=2)
        assert "there.db" in refused
        for run in runs:
            stores[1].send_signal(run, "go", b'"yes"')
        for run in runs:
            until(stores[1], run, State.COMPLETED)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(30)
    assert all(stores[0].read_run(run).state is State.MOVED for run in runs)  # type: ignore[union-attr]
    # A step under way when its worker was cut off is begun again under the same key, as after a crash: at
    # most one of each run. Nothing is lost, and nothing else is done twice.
    paid = (tmp_path / "paid").read_text().split()
    assert len(set(paid)) == 6 * len(runs)
    assert len(paid) - len(set(paid)) <= len(runs)
    assert [store.verify() for store in stores] == [[], []]
    for store in stores:
        store.close()


def test_copies_are_paused_and_refusals_named(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    command(tmp_path, "start", "agent.py:shop", "3", "--id", "order-1")
    there = ("--store", "sqlite:///there.db")
    said = command(tmp_path, "export", "order-1", "--to", "runs.nlx")
    assert "1 of them has not ended" in said
    assert "exists" in command(tmp_path, "export", "--all", "--to", "runs.nlx", code=2)
    assert "sound" in command(tmp_path, "import", "runs.nlx", "--check")
    assert json.loads(command(tmp_path, "import", "runs.nlx", "--check", "--json"))["sound"] is True
    done = json.loads(command(tmp_path, "import", "runs.nlx", "--json", *there))
    assert (done["imported"], done["paused"]) == (["order-1"], ["order-1"])
    assert json.loads(command(tmp_path, "import", "runs.nlx", "--json", *there))["there"] == ["order-1"]
    raw = (tmp_path / "runs.nlx").read_bytes()
    (tmp_path / "cut.nlx").write_bytes(raw[:-20])
    assert "refused" in command(tmp_path, "import", "cut.nlx", *there, code=2)
    command(tmp_path, "import", "cut.nlx", "--store", "sqlite:///new.db", code=2)
    assert not (tmp_path / "new.db").exists()
    command(tmp_path, "start", "agent.py:shop", "4", "--id", "order-1", "--store", "sqlite:///other.db")
    assert "another history" in command(
        tmp_path, "import", "runs.nlx", "--store", "sqlite:///other.db", code=1
    )
    assert "export needs runs" in command(tmp_path, "export", "--to", "none.nlx", code=2)


@pytest.mark.parametrize("side", ["before", "after"])
def test_an_import_killed_at_any_call_is_finished_by_the_next(side: Any, tmp_path: Path) -> None:
    source = make_bench("memory", SteppingClock(), tmp_path)
    for name in ("r1", "r2"):
        busy(source, name)
    path = tmp_path / "runs.nlx"
    export(source.store, ["r1", "r2"], path)
    for number in count(1):
        target = tmp_path / f"{number}.db"
        SqliteStore(target).close()
        child = os.fork()
        if child == 0:
            store: Any = KillingStore(SqliteStore(target), KillPoint(number, side))
            list(import_file(store, path))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        store = SqliteStore(target)
        done = list(import_file(store, path))
        assert {one.run.id for one in done} == {"r1", "r2"}  # type: ignore[union-attr]
        rows = [store.read_run(run) for run in ("r1", "r2")]
        assert all(row is not None and row.paused for row in rows)
        assert [fault for fault in store.verify() if not fault.duplicate] == []
        store.close()
        if not os.WIFSIGNALED(status):
            assert number > 3
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
