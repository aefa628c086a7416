"""Observers are notified of what the engine does, and cannot change it."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

import ninelives as nl
from ninelives.core.errors import RunEscalated, RunFailed
from ninelives.core.model.run import Kind, State, StepKind
from ninelives.engine import hooks
from ninelives.engine.context import EXECUTION
from ninelives.engine.hooks import Observer
from ninelives.engine.spec import registry
from ninelives.runtime import ProcessOptions
from ninelives.testing import Sandbox
from ninelives.testing.dying_store import parse_kill
from tests.replay.lifetimes import QuickStore, run_async

EVENTS = [name for name in vars(Observer) if not name.startswith("_")]


class Recorder(Observer):
    """Keeps every event, with the name of its method and the thread it came on."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.threads: list[int] = []

    def names(self, *wanted: str) -> list[str]:
        return [name for name, _ in self.events if not wanted or name in wanted]

    def of(self, wanted: str) -> list[Any]:
        return [event for name, event in self.events if name == wanted]


def _keeper(name: str) -> Any:
    def keep(self: Recorder, event: Any) -> None:
        self.events.append((name, event))
        self.threads.append(threading.get_ident())

    return keep


for _name in EVENTS:
    setattr(Recorder, _name, _keeper(_name))


class Faulty(Observer):
    """Raises at every event."""


def _fail(self: Faulty, event: Any) -> None:
    raise SystemExit(f"an observer of {event}")


for _name in EVENTS:
    setattr(Faulty, _name, _fail)


@contextmanager
def observed() -> Iterator[Recorder]:
    """Observe this process."""
    recorder = Recorder()
    stop = hooks.observe_process(recorder)
    try:
        yield recorder
    finally:
        stop()


def run_once(agent: Any, *observers: Observer, store: Any = None) -> Any:
    async def main() -> Any:
        options = ProcessOptions(observers=observers, is_dedicated=True, is_logged=False)
        async with nl.Runtime(store or QuickStore(), process=options) as rt:
            return await rt.run(agent, id="run")

    return run_async(main)


def test_a_step_is_reported_from_its_body_to_its_commit_to_the_runs_end() -> None:
    recorder = Recorder()

    @nl.decision(name="hooks.think")
    async def think(question: str) -> str:
        assert nl.key()
        return question.upper()

    @nl.agent(name="hooks.agent")
    async def agent() -> str:
        return await think("why")

    assert run_once(agent, recorder) == "WHY"
    assert recorder.names() == [
        "life_began",
        "body_began",
        "key_read",
        "body_ended",
        "committed",
        "committed",
        "ended",
        "life_left",
    ]
    began, ended = recorder.of("body_began")[0], recorder.of("body_ended")[0]
    assert (began.run, began.agent, began.epoch, began.turn) == ("run", "hooks.agent", 1, 0)
    assert (began.name, began.kind, began.attempt) == ("hooks.think", StepKind.DECISION, 1)
    assert (ended.step, ended.value, ended.error) == (began.step, "WHY", None)
    assert began.declared is registry.find_step("hooks.think")
    assert recorder.of("committed")[0].records == ((Kind.RESULT, began.step),)
    assert recorder.of("ended")[0].state is State.COMPLETED


def test_a_plain_body_is_reported_on_its_own_thread() -> None:
    recorder, threads = Recorder(), list[int]()

    @nl.action(name="hooks.plain")
    def act() -> None:
        threads.append(threading.get_ident())

    @nl.agent(name="hooks.plain_agent")
    def agent() -> None:
        act()

    run_once(agent, recorder)
    at = [recorder.names().index(name) for name in ("body_began", "body_ended")]
    assert [recorder.threads[one] for one in at] == threads * 2
    assert recorder.threads[recorder.names().index("committed")] != threads[0]


@pytest.mark.parametrize("options", [{}, {"resumable": False}, {"key": "k/{n}"}])
def test_each_attempt_is_reported_and_so_is_the_failed_one(options: dict[str, Any]) -> None:
    recorder, tries = Recorder(), list[int]()

    @nl.action(name="hooks.retried", retry=nl.Retry(attempts=2, base_seconds=0), **options)
    async def act(n: int) -> str:
        tries.append(n)
        if len(tries) == 1:
            raise nl.NotDone("not yet") if options.get("resumable") is False else ConnectionError("not yet")
        return "done"

    @nl.agent(name="hooks.retrying")
    async def agent() -> Any:
        return await act(1)

    assert run_once(agent, recorder) == "done"
    bodies = recorder.names("body_began", "body_ended", "attempt_failed")
    assert bodies == ["body_began", "body_ended", "attempt_failed", "body_began", "body_ended"]
    assert [event.attempt for event in recorder.of("body_began")] == [1, 2]
    assert "not yet" in str(recorder.of("attempt_failed")[0].error)
    assert "not yet" in str(recorder.of("body_ended")[0].error)


def test_the_body_of_a_transaction_ends_before_its_commit(tmp_path: Path) -> None:
    seen: list[int] = []

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "theirs.db", isolation_level=None)

    class Outside(Observer):
        def body_ended(self, event: hooks.BodyEnded) -> None:
            with closing(connect()) as other:
                seen.append(other.execute("SELECT count(*) FROM t").fetchone()[0])

    with closing(connect()) as conn:
        conn.execute("PRAGMA journal_mode=wal")
        conn.execute("CREATE TABLE t (x)")

    @nl.action(name="hooks.pay", transaction=connect)
    def pay(conn: sqlite3.Connection) -> int:
        conn.execute("INSERT INTO t VALUES (1)")
        return 1

    @nl.agent(name="hooks.payer")
    def agent() -> int:
        return pay()

    assert run_once(agent, Outside()) == 1
    assert seen == [0]


def test_a_declaration_is_reported_to_the_process() -> None:
    with observed() as recorder:

        @nl.action(name="hooks.declared")
        async def act() -> None: ...

    @nl.action(name="hooks.declared_later")
    async def other() -> None: ...

    assert [event.declared.name for event in recorder.of("declared")] == ["hooks.declared"]


def test_a_replay_a_takeover_and_its_progress_are_reported_after_a_death() -> None:
    @nl.action(name="hooks.first")
    async def first() -> int:
        return 1

    @nl.action(name="hooks.second")
    async def second() -> int:
        return 2

    with observed() as recorder:

        @nl.agent(name="hooks.taken")
        async def agent() -> int:
            return await first() + await second()

        with Sandbox(kill=parse_kill("before:commit:2")) as sandbox:
            assert sandbox.run(agent) == 3
            assert sandbox.kills == ["before commit 2"]
    (recovered,) = recorder.of("recovered")
    (replayed,) = recorder.of("replayed")
    assert replayed.declared.name == "hooks.first"
    assert replayed.epoch == recovered.epoch > recorder.of("body_began")[0].epoch
    assert (recovered.replayed, recovered.agent) == (1, "hooks.taken")
    assert recovered.progress_ms >= recovered.taken_ms
    assert [event.name for event in recorder.of("body_began")] == [
        "hooks.first",
        "hooks.second",
        "hooks.second",
    ]


def test_waits_questions_and_errors_are_reported() -> None:
    @nl.agent(name="hooks.sleeper")
    async def sleeper() -> None:
        await nl.sleep(3_600)
        raise ValueError("no more")

    with observed() as recorder, Sandbox() as sandbox, pytest.raises(RunFailed):
        sandbox.run(sleeper)
    (parked,) = recorder.of("parked")
    assert parked.due_ms is not None
    assert parked.waits.startswith("until")
    assert isinstance(recorder.of("agent_raised")[0].error, ValueError)
    assert recorder.of("ended")[0].state is State.FAILED


def test_a_divergence_and_the_escalation_after_it_are_reported() -> None:
    amounts = iter([1, 2, 3, 4])

    @nl.action(name="hooks.charged")
    async def charge(amount: int) -> None: ...

    @nl.action(name="hooks.last")
    async def last() -> None: ...

    @nl.agent(name="hooks.diverging")
    async def agent() -> None:
        await charge(next(amounts))
        await last()

    kill = parse_kill("before:commit:2")
    with observed() as recorder, Sandbox(kill=kill) as sandbox, pytest.raises(RunEscalated):
        sandbox.run(agent)
    (diverged,), (escalated,) = recorder.of("diverged"), recorder.of("escalated")
    assert diverged.error.step is not None
    assert escalated.waits.startswith("for a person")
    assert len(escalated.items) == 1


def test_an_observer_that_raises_changes_nothing_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    recorder, tries = Recorder(), list[int]()

    @nl.action(name="hooks.flaky", retry=nl.Retry(attempts=3, base_seconds=0))
    async def act() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError
        return nl.key()

    @nl.agent(name="hooks.watched_badly")
    async def agent() -> str:
        return await act()

    with caplog.at_level(logging.ERROR, "ninelives"):
        found = run_once(agent, Faulty(), recorder)
    assert found
    assert len(tries) == 3
    assert len(recorder.of("body_began")) == 3
    said = [record.getMessage() for record in caplog.records if "observer" in record.getMessage()]
    assert len(said) == len(set(said)) == len(set(recorder.names()))


def test_without_an_observer_no_execution_has_hooks() -> None:
    found: list[Any] = []

    @nl.action(name="hooks.free")
    async def act() -> None:
        found.append(cast("Any", EXECUTION.get()).hooks)

    @nl.agent(name="hooks.unobserved")
    async def agent() -> None:
        await act()

    run_once(agent)
    assert found == [None]


PROGRAM = """
    import os, signal, sys
    import ninelives as nl
    from ninelives.engine import hooks

    class Killer(hooks.Observer):
        def body_ended(self, event):
            if event.name == sys.argv[2]:
                os.kill(os.getpid(), signal.SIGKILL)
        def replayed(self, event):
            print("replayed", event.declared.name)
        def body_began(self, event):
            print("began", event.name)
        def recovered(self, event):
            print("recovered", event.deaths, event.replayed)

    hooks.observe_process(Killer())

    @nl.action
    async def one() -> int:
        return 1

    @nl.action
    async def two() -> int:
        return 2

    @nl.agent
    async def agent() -> int:
        return await one() + await two()

    print(nl.run(agent, id="r", store="sqlite:///" + sys.argv[1]), flush=True)
"""


def test_an_observer_may_kill_the_process_and_the_next_one_is_told_of_the_recovery(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))

    def life(killed_at: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(program), str(tmp_path / "runs.db"), killed_at],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    first, second = life("two"), life("nothing")
    assert first.returncode == -signal.SIGKILL
    assert first.stdout.splitlines() == ["began one", "began two"]
    assert second.stdout.splitlines() == ["replayed one", "began two", "recovered 1 1", "3"]
