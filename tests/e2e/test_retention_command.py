"""`ninelives store retain`, `store compact` and the sizes of `store stats`, as an operator types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ninelives.core.journal import chain
from ninelives.core.model.commit import Commit, End
from ninelives.core.model.run import Kind, NewRun, State
from ninelives.core.model.session import NewSession
from ninelives.ops.periodic import Periodic
from ninelives.stores.sqlite import SqliteStore


def filled(path: Path, runs: int = 20) -> str:
    """Make a store with ended runs of two agents, each with some records."""
    store = SqliteStore(path)
    store.register_session(NewSession(id="s", host="here", pid=os.getpid(), lease_ms=600_000))
    names = [(f"{agent}-{number}", agent) for number in range(runs) for agent in ("ant", "bee")]
    store.create_runs([NewRun(id=name, agent=agent, fingerprint=b"", body=b"{}") for name, agent in names])
    for run in store.claim_runs("s", 10_000, {"ant": 10_000, "bee": 10_000}).runs:
        drafts = [(Kind.LOG, "", 1, os.urandom(3000), ()) for _ in range(10 + (run.id == "bee-7"))]
        records = chain.seal(run.length, run.head, [*drafts, (Kind.END, "", 1, b"42", ())], run.epoch)
        parts = {"run": run.id, "epoch": run.epoch, "length": run.length, "head": run.head}
        store.commit([Commit(**parts, records=records, change=End(State.COMPLETED))])  # type: ignore[arg-type]
    store.close()
    return f"sqlite:///{path}"


def ninelives(*words: str, store: str) -> subprocess.CompletedProcess[str]:
    """Run the command with no terminal."""
    command = [sys.executable, "-m", "ninelives", *words, "--store", store]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_retain_removes_by_agent_and_reports_the_size(tmp_path: Path) -> None:
    url = filled(tmp_path / "runs.db")
    time.sleep(0.002)  # an age of 0 s is not older than this very millisecond
    done = json.loads(
        ninelives("store", "retain", "--keep", "0s", "--agent", "bee=9d", "--json", store=url).stdout
    )
    assert (done["removed"]["journals"], done["removed"]["runs"]) == (20, 0)
    assert done["size"]["bytes"] > 0
    told = ninelives("store", "retain", "--keep", "0s", "--forget", "0s", store=url)
    assert "removed 20 journals" in told.stdout
    assert "40 runs forgotten" in told.stdout
    for words in (
        ("--keep", "30d", "--forget", "3d"),
        ("--agent", "9d"),
        ("--agent", "bee=soon"),
        ("--keep", "x"),
        ("--every", "0s"),
    ):
        assert ninelives("store", "retain", *words, store=url).returncode == 2
    assert ninelives("store", "verify", store=url).stdout == "no faults\n"


def test_two_that_retain_every_second_may_be_killed(tmp_path: Path) -> None:
    url = filled(tmp_path / "runs.db", runs=5)
    command = [
        sys.executable,
        "-m",
        "ninelives",
        "store",
        "retain",
        "--keep",
        "0s",
        "--every",
        "1s",
        "--store",
        url,
    ]
    loops = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    store = SqliteStore(tmp_path / "runs.db")
    deadline = time.monotonic() + 30
    while not Periodic(store, "retention", 1.0).read().is_done and time.monotonic() < deadline:
        time.sleep(0.05)
    assert store.stats().records == 0
    for loop in loops:
        loop.send_signal(signal.SIGKILL)
        loop.communicate()
    assert store.verify() == []
    store.close()


def test_compact_gives_disk_back_and_refuses_a_store_in_use(tmp_path: Path) -> None:
    url = filled(tmp_path / "runs.db", runs=40)
    ninelives("store", "retain", "--keep", "0s", store=url)
    kept = SqliteStore(tmp_path / "runs.db")
    refused = ninelives("store", "compact", store=url)
    assert refused.returncode == 2
    assert "is open in a process" in refused.stderr
    kept.close()
    done = json.loads(ninelives("store", "compact", "--json", store=url).stdout)
    assert done["after"] < done["before"] / 4
    assert ninelives("store", "verify", store=url).stdout == "no faults\n"
    store = SqliteStore(tmp_path / "runs.db")
    assert len(store.count_runs()) == 2
    store.close()


@pytest.mark.parametrize("after_ms", [3, 15])
def test_a_compact_that_is_killed_loses_nothing(tmp_path: Path, after_ms: int) -> None:
    url = filled(tmp_path / "runs.db", runs=60)
    code = (
        "import os, threading, sys; from ninelives.stores.compaction import compact; "
        f"threading.Timer({after_ms} / 1000, lambda: os.kill(os.getpid(), 9)).start(); "
        f"[compact({url!r}) for _ in range(50)]"
    )
    killed = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert ninelives("store", "verify", store=url).stdout == "no faults\n"
    store = SqliteStore(tmp_path / "runs.db")
    assert sum(one.runs for one in store.count_runs()) == 120
    store.close()


def test_stats_show_the_largest_runs(tmp_path: Path) -> None:
    url = filled(tmp_path / "runs.db")
    found = json.loads(ninelives("store", "stats", "--largest", "2", "--json", store=url).stdout)
    assert found["largest"][0]["run"] == "bee-7"
    assert found["largest"][0]["bytes"] > 33_000
    assert "bee-7" in ninelives("store", "stats", "--largest", "2", store=url).stdout
