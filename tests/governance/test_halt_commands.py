"""`halt`, `unhalt`, `halts`, what other commands and metrics say of them, and `--kill` by a supervisor."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from ninelives.core.governance.breaker import Breaker, BreakerState, failed
from ninelives.core.model.run import NewRun, RunRow
from ninelives.governance.breakers import PREFIX
from ninelives.ops.metrics import reading, reports
from ninelives.ops.notify.events import Sources
from ninelives.ops.notify.notice import Style
from ninelives.stores.sqlite import SqliteStore
from tests.supervisor.fleets import AGENTS, Home, Up, is_alive, wait_until


class Shell:
    """The command, on one store."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}/runs.db"
        self.store = SqliteStore(path / "runs.db")
        runs = [NewRun(id=f"r{n}", agent="shop", fingerprint=b"f", body=b"{}") for n in range(2)]
        self.store.create_runs(runs)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        command = [sys.executable, "-m", "ninelives", *words, "--store", self.url]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Yield the command on a store with two runs."""
    made = Shell(tmp_path)
    yield made
    made.store.close()


def test_a_halt_is_declared_listed_said_everywhere_and_lifted(shell: Shell) -> None:
    assert shell.run("halt", "--agent", "shop").returncode == 2, "a reason is required"
    for wrong in (["--agent", "shpo"], ["--run", "r9"], ["--label", "tenant"], [], ["--all", "--run", "r0"]):
        refused = shell.run("halt", "--reason", "a fault", *wrong)
        assert refused.returncode == 2, wrong
    declared = shell.run("halt", "--run", "r0", "--reason", "a fault", "--by", "ada", "--until", "2h")
    name = declared.stdout.strip()
    assert f"ninelives unhalt {name}" in declared.stderr
    listed = shell.run("halts")
    assert name in listed.stdout
    assert "run 'r0'" in listed.stdout
    said = f"run 'r0', by ada: a fault ({name})"
    assert said in shell.run("ps").stderr
    assert said in shell.run("show", "r0").stdout
    assert said not in shell.run("show", "r1").stdout
    assert "run 'r0', by ada" in shell.run("status").stdout
    (halted,) = json.loads(shell.run("status", "--json").stdout)["halts"]
    assert (halted["id"], halted["is_trip"]) == (name, False)
    assert samples(shell.store) == (1, 0)
    lifted = shell.run("unhalt", name, "--by", "eve", "--reason", "repaired")
    assert lifted.stdout == f"lifted {name}: run 'r0'\n"
    assert shell.run("unhalt", name).returncode == 2
    assert "no halts are in force" in shell.run("halts").stderr
    assert "lifted" in shell.run("halts", "--all").stdout
    assert samples(shell.store) == (0, 0)


def test_a_halt_that_holds_nothing_now_says_so(shell: Shell) -> None:
    reason = ("--reason", "a fault")
    assert "spelled right" in shell.run("halt", "--label", "tenant=acme", *reason).stderr
    assert "note" not in shell.run("halt", "--agent", "shop", *reason).stderr
    for run in ("r0", "r1"):
        assert shell.run("cancel", run).returncode == 0
    said = shell.run("halt", "--agent", "shop", *reason).stderr
    assert "it holds those that come" in said, "the name is right: there were such runs"


def test_a_halt_of_a_trip_and_an_open_breaker_are_problems(shell: Shell) -> None:
    declared = shell.run("halt", "--all", "--reason", "denials > 5 in 1m", "--by", "trip:denied")
    rule, now_ms = Breaker(failures=1), shell.store.now_ms()
    state = failed(BreakerState(), rule, [now_ms], now_ms, "OSError: away")
    shell.store.write_document(f"{PREFIX}search", msgspec.json.encode(state), version=0)
    found = json.loads(shell.run("status", "--json").stdout)
    kinds = {one["kind"]: one["text"] for one in found["problems"]}
    assert "ninelives halts" in kinds["halted"]
    assert "OSError: away" in kinds["breaker"]
    assert samples(shell.store) == (1, 1)
    (event,) = Sources(shell.store, Style(store="store", command=" ".join), 600_000).halts(now_ms)
    assert (event.kind, event.about) == ("halt", declared.stdout.strip())


def samples(store: SqliteStore) -> tuple[float, float]:
    """Return what metrics say of halts and breakers."""
    found = reports.samples_of(reading.read(store).documents, store.now_ms())
    return found["ninelives_halts"][()], found["ninelives_breakers_open"][()]


def test_kill_ends_the_workers_of_halted_runs_once_and_the_other_runs_go_on_elsewhere(tmp_path: Path) -> None:
    # Of one worker: the run that is not halted loses nothing but the step that was under way.
    more = """
@nl.agent
async def other() -> str:
    await mark("first")
    await hold("second")
    return VERSION
"""
    home = Home(tmp_path, AGENTS + more)
    with Up(home) as up:
        (first,) = up.ready()
        home.start("r", agent="held")
        home.start("o", agent="other")
        wait_until(lambda: home.noted("r", "second") and home.noted("o", "second"), "they never came so far")
        command = [
            sys.executable,
            "-m",
            "ninelives",
            "halt",
            "--agent",
            "held",
            "--kill",
            "--reason",
            "a fault",
        ]
        done = subprocess.run([*command, "--store", home.url], capture_output=True, text=True, check=True)
        _, second = up.ready(2)
        assert not is_alive(first)
        wait_until(lambda: len(home.noted("o", "second")) == 2, "the other run does not go on")
        home.go()
        home.completed("o")
        with closing(SqliteStore(tmp_path / "runs.db")) as store:
            wait_until(lambda: "until the halt" in row(store, "r").waits, "the run is not held")
            assert row(store, "r").deaths == 0, "it was no death of the run's own"
            assert len(home.noted("r", "second")) == 1
        assert is_alive(second), "a halt ends a worker once"
        lift = [sys.executable, "-m", "ninelives", "unhalt", done.stdout.strip(), "--store", home.url]
        subprocess.run(lift, check=True)
        home.completed("r")
        assert up.stop() == 0
    assert "what h-" in up.log


def row(store: SqliteStore, run: str) -> RunRow:
    """Return a run's row, which must be there."""
    found = store.read_run(run)
    assert found is not None
    return found
