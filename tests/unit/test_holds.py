"""Resources that a run holds: checked when it comes back, handed on, escalated, released."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.journal.resources import open_in
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Kind, State
from ninelives.engine.agent.resource_checks import WHOLE_BYTES, Gone, examine
from ninelives.engine.agent.resources import Resource
from tests.replay.lifetimes import QuickStore, Stage, first_life, run_async, second_life


def lives(
    stage: Stage, agent: Any, meanwhile: Callable[[], object], store: QuickStore | None = None
) -> tuple[Any, QuickStore]:
    """Live once, let something happen, live again."""
    kept = store or QuickStore()

    async def main() -> Any:
        await first_life(stage, kept, agent)
        meanwhile()
        return await second_life(kept, agent)

    return run_async(main), kept


def holder(stage: Stage, resource: Resource, **options: Any) -> Any:
    """Return an agent that holds something while it stops."""

    @nl.action(name="work")
    async def work() -> str:
        stage.did("work")
        await stage.stop_here()
        return "done"

    @nl.agent(name="holder", **options)
    async def agent() -> str:
        held = nl.hold(resource)
        out = await work()
        held.release()
        return out

    return agent


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def become_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def git(repo: Path, *args: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *args], cwd=repo, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with the branches main and fix."""
    path = tmp_path / "repo"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    write(path / "a", "a")
    git(path, "add", "a")
    git(path, "commit", "-qm", "a")
    git(path, "branch", "fix")
    return path


def test_what_has_not_changed_is_no_news(tmp_path: Path, repo: Path) -> None:
    for resource in (nl.File(write(tmp_path / "f", "same")), nl.GitBranch(repo, "fix")):
        stage = Stage()
        result, store = lives(stage, holder(stage, resource), lambda: None)
        assert result == "done"
        assert open_in(store.load_journal("run").records) == {}


def escalated(stage: Stage, agent: Any, meanwhile: Callable[[], object]) -> tuple[str, QuickStore]:
    """Live twice; the second life must stop before a person. Returns what the person is asked."""
    store = QuickStore()
    with pytest.raises(nl.RunEscalated):
        lives(stage, agent, meanwhile, store)
    assert stage.executed == []
    (item,) = store.list_inbox()
    assert item.kind is ItemKind.RESOURCE
    return item.body.decode(), store


def test_a_changed_or_missing_file_escalates_before_anything_is_done(tmp_path: Path) -> None:
    path = tmp_path / "f"
    ways: list[tuple[Callable[[], object], str]] = [
        (lambda: write(path, "2"), "its content was"),
        (lambda: write(path, "longer"), "its size was 1 and is 6"),
        (path.unlink, "No such file"),
        (lambda: become_directory(path), "it is a directory"),
    ]
    for meanwhile, said in ways:
        if not path.is_dir():
            write(path, "1")
        stage = Stage()
        what, _ = escalated(stage, holder(stage, nl.File(path)), meanwhile)
        assert said in what
        assert str(path) in what


def test_the_branch_that_was_deleted_while_the_agent_was_down(repo: Path) -> None:
    stage = Stage()
    agent = holder(stage, nl.GitBranch(repo, "fix"))
    what, store = escalated(stage, agent, lambda: git(repo, "branch", "-D", "fix"))
    assert "no such branch any more" in what

    async def restore() -> Any:
        async with nl.Runtime(store) as rt:
            (item,) = await rt.inbox()
            git(repo, "branch", "fix")
            await item.retry(by="ada")
            return await rt.run(agent, id="run")

    assert run_async(restore) == "done"
    assert stage.executed == ["work"]


def test_a_branch_that_moved_is_stale(repo: Path) -> None:
    stage = Stage()

    def push() -> None:
        git(repo, "checkout", "-q", "fix")
        git(repo, "commit", "-q", "--allow-empty", "-m", "another's")

    what, _ = escalated(stage, holder(stage, nl.GitBranch(repo, "fix")), push)
    assert "its commit was" in what


@pytest.mark.parametrize("says", ["retry", "fail"])
def test_a_person_says_whether_the_run_goes_on_with_it_as_it_is(tmp_path: Path, says: str) -> None:
    path, stage = write(tmp_path / "f", "1"), Stage()
    agent = holder(stage, nl.File(path))
    _, store = escalated(stage, agent, lambda: write(path, "2"))

    async def main() -> Any:
        async with nl.Runtime(store) as rt:
            (item,) = await rt.inbox()
            await getattr(item, says)(by="ada")
            return await rt.run(agent, id="run")

    if says == "retry":
        assert run_async(main) == "done"
        assert stage.executed == ["work"]
    else:
        with pytest.raises(nl.RunFailed, match="gave the run up"):
            run_async(main)


def test_the_agents_handler_mends_it_and_the_run_goes_on(repo: Path) -> None:
    seen: list[nl.StaleResource] = []

    async def mend(stale: nl.StaleResource) -> None:
        seen.append(stale)
        assert isinstance(stale.resource, nl.GitBranch)
        git(Path(stale.resource.repo), "branch", stale.resource.name)

    stage = Stage()
    agent = holder(stage, nl.GitBranch(repo, "fix"), on_stale=mend)
    result, _ = lives(stage, agent, lambda: git(repo, "branch", "-D", "fix"))
    assert result == "done"
    assert [stale.run for stale in seen] == ["run"]


def test_a_handler_may_give_it_back_or_fail_the_run(tmp_path: Path) -> None:
    def hand_on(stale: nl.StaleResource) -> None:
        raise stale

    def refuse(stale: nl.StaleResource) -> None:
        raise KeyError("over")

    path, stage = write(tmp_path / "f", "1"), Stage()
    escalated(stage, holder(stage, nl.File(path), on_stale=hand_on), lambda: write(path, "2"))
    stage = Stage()
    with pytest.raises(nl.RunFailed, match="over"):
        lives(stage, holder(stage, nl.File(path), on_stale=refuse), lambda: write(path, "3"))


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("fine", [True, False])
def test_ones_own_check_is_asked_before_anything_fresh_begins(is_async: bool, fine: bool) -> None:
    asked = threading.Event()

    def check() -> bool:
        asked.set()
        return fine

    async def check_too() -> bool:
        return check()

    stage = Stage()
    agent = holder(stage, nl.Custom("lease", check_too if is_async else check))
    if fine:
        result, _ = lives(stage, agent, lambda: None)
        assert result == "done"
    else:
        what, _ = escalated(stage, agent, lambda: None)
        assert "lease" in what
    assert asked.is_set()


class Site(BaseHTTPRequestHandler):
    """Answers what it is told to."""

    status = 200

    def do_HEAD(self) -> None:
        self.send_response(405 if self.status == 200 else self.status)
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    """A server on this machine."""
    server = HTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/thing"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_address_that_answers_no_more_is_stale(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    assert lives(stage, holder(stage, nl.Url(site)), lambda: None)[0] == "done"
    stage = Stage()
    what, _ = escalated(stage, holder(stage, nl.Url(site)), lambda: monkeypatch.setattr(Site, "status", 404))
    assert "answers 404" in what


def test_a_released_resource_is_not_checked_any_more(tmp_path: Path) -> None:
    path, stage = write(tmp_path / "f", "1"), Stage()

    @nl.action(name="work")
    async def work() -> str:
        await stage.stop_here()
        return "done"

    @nl.agent(name="brief")
    async def brief() -> str:
        with nl.hold(nl.File(path)):
            await nl.gather()
        return await work()

    assert lives(stage, brief, path.unlink)[0] == "done"


def test_a_with_block_that_is_evicted_goes_on_holding(tmp_path: Path) -> None:
    path, stage = write(tmp_path / "f", "1"), Stage()

    @nl.action(name="work")
    async def work() -> str:
        await stage.stop_here()
        return "done"

    @nl.agent(name="long")
    async def long() -> str:
        with nl.hold(nl.File(path)):
            return await work()

    escalated(stage, long, path.unlink)


def test_what_is_held_is_carried_into_the_next_turn_and_can_be_released_there(tmp_path: Path) -> None:
    path, stage = write(tmp_path / "f", "1"), Stage()

    @nl.action(name="work")
    async def work(turn: int) -> str:
        if turn == stop:
            await stage.stop_here()
        return "done"

    @nl.agent(name="turns")
    async def turns(turn: int = 0) -> str:
        if turn == 0:
            nl.hold(nl.File(path))
        if turn == 2:
            nl.hold(nl.File(path)).release()
        await work(turn)
        return nl.next_turn(turn + 1) if turn < 2 else "done"

    stop = 1
    escalated(stage, turns, path.unlink)
    write(path, "1")
    stage, stop = Stage(), 2
    result, store = lives(stage, turns, path.unlink)
    assert result == "done"
    assert open_in(store.load_journal("run").records) == {}


@pytest.mark.parametrize(
    "what", ["directory", "fifo", "missing", "no repo", "no branch", "bad branch", "ftp"]
)
def test_bad_targets_are_refused_at_once(tmp_path: Path, repo: Path, what: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    bad: dict[str, Resource] = {
        "directory": nl.File(tmp_path),
        "fifo": nl.File(tmp_path / "fifo"),
        "missing": nl.File(tmp_path / "missing"),
        "no repo": nl.GitBranch(tmp_path, "main"),
        "no branch": nl.GitBranch(repo, "nothing"),
        "bad branch": nl.GitBranch(repo, "--all"),
        "ftp": nl.Url("ftp://example.com/x"),
    }
    caught: list[str] = []

    @nl.agent(name="bad")
    async def agent() -> str:
        try:
            nl.hold(bad[what])
        except nl.UsageError as error:
            caught.append(str(error))
            return "refused"
        return "held"

    async def main() -> Any:
        async with nl.Runtime(QuickStore()) as rt:
            return await rt.run(agent)

    assert run_async(main) == "refused"
    assert caught


def test_a_refusal_is_the_same_on_replay(tmp_path: Path) -> None:
    path, stage = tmp_path / "f", Stage()

    @nl.action(name="work")
    async def work() -> None:
        await stage.stop_here()

    @nl.agent(name="refused")
    async def refused() -> str:
        try:
            nl.hold(nl.File(path))
        except nl.UsageError as error:
            await work()
            return str(error)
        return "held"

    result, _ = lives(stage, refused, lambda: write(path, "1"))
    assert "No such file" in result


def test_a_large_file_is_known_by_its_ends_and_its_time(tmp_path: Path) -> None:
    from ninelives.core.journal.resources import Target

    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(WHOLE_BYTES + 1)
    before = examine(Target("file", str(path)))
    assert set(before) == {"size", "content", "time of change"}
    os.utime(path, ns=(0, 0))
    assert examine(Target("file", str(path))) != before
    with pytest.raises(Gone):
        examine(Target("file", "/dev/null"))


def test_a_hold_is_for_the_agent_not_for_a_step(tmp_path: Path) -> None:
    path = write(tmp_path / "f", "1")

    @nl.action(name="holding")
    async def holding() -> None:
        nl.hold(nl.File(path))

    @nl.agent(name="outer")
    async def outer() -> None:
        await holding()

    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            run = await rt.start(outer, id="run")
            with pytest.raises(nl.RunFailed, match="not for a step"):
                await rt.run(outer, id="run")
            assert await run.status() is State.FAILED

    run_async(main)


def test_a_hold_may_be_taken_in_a_thread_and_keeps_its_place_on_replay(tmp_path: Path) -> None:
    stage, first, second = Stage(), write(tmp_path / "first", "a"), write(tmp_path / "second", "b")

    @nl.action(name="work")
    async def work() -> str:
        await stage.stop_here()
        return "done"

    @nl.agent(name="holder")
    async def agent() -> str:
        nl.hold(nl.File(first))
        with await asyncio.to_thread(nl.hold, nl.File(second)):
            with pytest.raises(nl.UsageError, match="cannot be held"):
                await asyncio.to_thread(nl.hold, nl.File(tmp_path / "missing"))
            return await work()

    result, store = lives(stage, agent, lambda: None)
    assert result == "done"
    records = store.load_journal("run", since=0).records
    assert [one.step for one in records if one.kind is Kind.HELD] == ["#hold#0", "#hold#1"]
    assert [one.target.at for one in open_in(records).values()] == [str(first)]
