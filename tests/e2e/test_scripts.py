"""`nl.run` in a script: interrupted, paused by its store, edited in a hurry."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.errors import StoreUnavailable
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.counter import Counter
from ninelives.core.model.session import Session
from ninelives.runtime import agent_loader
from ninelives.runtime.script import insist
from ninelives.stores.open import open_store
from tests.replay.lifetimes import QuickStore, run_async

PATIENCE_SECONDS = 60.0
SCRIPT = """
import asyncio, os, sys, time
from pathlib import Path
import ninelives as nl

@nl.action
async def first() -> str:
    with open("effects", "a") as file:
        file.write("first ")
    return "first"

@nl.action
async def waits() -> str:
    if Path("go").exists():
        return "went on"
    print("here", flush=True)
    await asyncio.Event().wait()
    return ""

@nl.action
def blocks() -> str:
    print("here", flush=True)
    time.sleep(600)
    return ""

@nl.agent
async def patient() -> list[str]:
    return [await first(), await waits()]

@nl.agent
def stubborn() -> str:
    return blocks()

print(nl.run(globals()[sys.argv[1]], id="it"))
"""


def start(directory: Path, agent: str) -> subprocess.Popen[str]:
    """Start the script and wait until it is in the middle of a step."""
    (directory / "script.py").write_text(SCRIPT, encoding="utf-8")
    child = subprocess.Popen(
        [sys.executable, "script.py", agent],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "here\n"
    return child


def test_a_path_and_an_id_beyond_ascii_work_in_the_posix_locale(tmp_path: Path) -> None:
    home = tmp_path / "ünï"
    home.mkdir()
    script = "import ninelives as nl\n@nl.agent\nasync def job() -> str: return 'ö'\nnl.run(job, id='ü')"
    (home / "script.py").write_text(script, encoding="utf-8")
    environment = {**os.environ, "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    look = ["-m", "ninelives", "ps", "--all"]
    for command in (["script.py"], look, [*look, "--json"]):
        ran = subprocess.run(
            [sys.executable, *command], cwd=home, env=environment, capture_output=True, text=True, check=False
        )
        assert (ran.returncode, "Traceback" in ran.stderr) == (0, False)
    assert json.loads(ran.stdout)[0]["id"] == "ü"


def test_ctrl_c_says_how_to_go_on_and_the_script_goes_on(tmp_path: Path) -> None:
    with start(tmp_path, "patient") as child:
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode in (-signal.SIGINT, 130, 1)
    assert "run 'it' is kept and continues when it is run again" in said
    (tmp_path / "go").touch()
    again = subprocess.run(
        [sys.executable, "script.py", "patient"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    assert again.stdout == "['first', 'went on']\n"
    assert f"ninelives: created a new store: {tmp_path}/.ninelives/runs.db\n" in said
    assert "store" not in again.stderr
    assert (tmp_path / "effects").read_text() == "first "


@pytest.mark.parametrize("agent", ["patient", "stubborn"])
def test_sigterm_ends_the_session_and_costs_no_life(tmp_path: Path, agent: str) -> None:
    with start(tmp_path, agent) as child:
        child.send_signal(signal.SIGTERM)
        _, said = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == -signal.SIGTERM
    assert "run 'it' is kept" in said
    store = open_store(f"sqlite:///{tmp_path}/.ninelives/runs.db")
    row = store.read_run("it")
    assert store.list_sessions() == []
    store.close()
    assert row is not None
    assert (row.session, row.deaths) == (None, 0)


def test_a_second_ctrl_c_ends_at_once_whatever_blocks(tmp_path: Path) -> None:
    with start(tmp_path, "stubborn") as child:
        assert child.stderr is not None
        child.send_signal(signal.SIGINT)
        assert "created a new store: " in child.stderr.readline()
        assert "stopping" in child.stderr.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE_SECONDS) == 130


class FullStore(QuickStore):
    """A store on a disk that is full until somebody frees it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.refused = threading.Event()

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Commit, if there is room."""
        self._check()
        return super().commit(batch)

    def renew_session(self, session: str, *, counts: Sequence[Counter] = ()) -> Session:
        """Renew, if there is room."""
        self._check()
        return super().renew_session(session, counts=counts)

    def register_session(self, new: Any) -> Session:
        """Register, if there is room."""
        self._check()
        return super().register_session(new)

    def _check(self) -> None:
        if self.is_full:
            self.refused.set()
            raise StoreUnavailable("the disk is full", remedy="Free disk space")


@pytest.mark.parametrize("fills", ["before", "meanwhile"])
def test_a_full_disk_pauses_a_script_and_it_goes_on(fills: str, capsys: pytest.CaptureFixture[str]) -> None:
    store = FullStore()
    done: list[str] = []

    @nl.action(name="effect")
    async def effect(word: str) -> str:
        done.append(word)
        store.is_full = fills == "meanwhile" and word == "two" and not store.refused.is_set()
        return word

    @nl.agent(name="in a full house")
    async def agent() -> list[str]:
        return [await effect("one"), await effect("two"), await effect("three")]

    def free() -> None:
        store.refused.wait(PATIENCE_SECONDS)
        store.is_full = False

    async def main() -> Any:
        async with nl.Runtime(store) as rt:
            store.is_full = fills == "before"
            return await insist(rt, agent, (), "run")

    freeing = threading.Thread(target=free)
    freeing.start()
    assert run_async(main) == ["one", "two", "three"]
    freeing.join()
    assert done == ["one", "two", "three"]
    assert ("paused" in capsys.readouterr().err) is (fills == "before")


def test_a_lost_lease_means_a_new_session_only(monkeypatch: pytest.MonkeyPatch) -> None:
    store = QuickStore()
    lost = [True]
    original = nl.Runtime.run

    async def run(self: nl.Runtime, *args: Any, **kwargs: Any) -> Any:
        if lost:
            lost.clear()
            raise nl.LeaseLost("the lease has run out")
        return await original(self, *args, **kwargs)

    @nl.agent(name="after a nap")
    async def agent() -> str:
        return "awake"

    async def main() -> Any:
        async with nl.Runtime(store) as rt:
            return await insist(rt, agent, (), "run")

    monkeypatch.setattr(nl.Runtime, "run", run)
    assert run_async(main) == "awake"


def test_a_file_is_compiled_as_it_is_not_as_it_was_in_the_same_second(tmp_path: Path) -> None:
    path = tmp_path / "hurried.py"
    found = []
    for word in ("one", "two"):
        path.write_text(f"WORD = '{word}'\n", encoding="utf-8")
        os.utime(path, (1_700_000_000, 1_700_000_000))
        found.append(agent_loader.load(str(path)).WORD)
        sys.modules.pop("hurried", None)
    assert found == ["one", "two"]
