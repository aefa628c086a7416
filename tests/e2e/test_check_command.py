"""`ninelives check`: runs in flight against new code, of every kind of change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# What ran when it was killed: each agent has one step recorded and one under way.
OLD = """
import asyncio, os
import ninelives as nl

@nl.action
async def first(word: str) -> int:
    return len(word)

@nl.action(reads_only=True)
async def gone(word: str) -> int:
    return len(word)

reached = 0

async def arrive():
    global reached
    reached += 1
    if reached == 9:
        os._exit(0)
    await asyncio.Event().wait()

@nl.action
async def last(number: int) -> int:
    await arrive()

@nl.action(resumable=False)
async def pay(cents: int) -> None:
    await arrive()

async def two(word):
    return await last(await first(word))

@nl.agent
async def same() -> int:
    return await two("same")

@nl.agent
async def other() -> int:
    return await two("other")

@nl.agent
async def typed() -> int:
    return await two("typed")

@nl.agent
async def fewer() -> int:
    await gone("fewer")
    return await two("fewer")

@nl.agent
async def raising() -> int:
    return await two("raising")

@nl.agent
async def online() -> int:
    return await two("online")

@nl.agent
async def busy() -> int:
    return await two("busy")

@nl.agent
async def removed() -> int:
    return await two("removed")

@nl.agent
async def paying() -> None:
    await pay(100)

@nl.agent
async def waiting(word: str) -> int:
    return 1

async def main():
    async with nl.Runtime("sqlite:///runs.db") as rt:
        for agent in (same, other, typed, fewer, raising, online, busy, removed, paying):
            await rt.start(agent, id=agent.__name__)
        await rt.start(waiting, "seven", id="waiting", delay=3600)
        await rt.work()

if __name__ == "__main__":
    asyncio.run(main())
"""

NEW = """
import socket, time
from pathlib import Path
import ninelives as nl

@nl.action
async def first(word: str) -> int:
    Path("executed").touch()
    return len(word)

@nl.action(name="first")
async def first_of_text(word: str) -> str:
    Path("executed").touch()
    return word

@nl.action
async def last(number: int) -> int:
    Path("executed").touch()
    return number

@nl.action(reads_only=True)
async def gone(word: str) -> int:
    return len(word)

@nl.agent
async def same() -> int:
    print("this is no finding")
    return await last(await first("same"))

@nl.agent
async def other() -> int:
    return await last(await first("another"))

@nl.agent
async def typed() -> int:
    return await last(len(await first_of_text("typed")))

@nl.agent
async def fewer() -> int:
    return await last(await first("fewer"))

@nl.agent
async def raising() -> int:
    await first("raising")
    raise KeyError("new")

@nl.agent
async def online() -> int:
    await first("online")
    socket.create_connection(("127.0.0.1", 9))
    return await last(6)

@nl.agent
async def busy() -> int:
    await first("busy")
    while True:
        pass

@nl.action(resumable=False)
async def pay(cents: int) -> None:
    Path("executed").touch()

@nl.agent
async def paying() -> None:
    await pay(999)

@nl.agent
async def waiting(number: int) -> int:
    return number
"""


def check(home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ninelives", "check", "agents.py", "--store", "sqlite:///runs.db", *options],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with a store full of runs that were killed in mid-step."""
    (tmp_path / "agents.py").write_text(OLD, encoding="utf-8")
    subprocess.run([sys.executable, "agents.py"], cwd=tmp_path, check=True, timeout=60)
    return tmp_path


def test_check_names_every_run_that_would_not_go_on_and_executes_nothing(home: Path) -> None:
    before = (home / "runs.db").read_bytes()
    fitting = check(home)
    assert fitting.returncode == 0, fitting.stderr
    assert "10 unfinished runs fit this code, 0 do not" in fitting.stderr

    (home / "agents.py").write_text(NEW, encoding="utf-8")
    done = check(home, "--json", "--limit", "1")
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    found = {one["run"]: one for one in report["problems"]}
    assert {run: one["fit"] for run, one in found.items()} == {
        "other": "diverges",
        "typed": "diverges",
        "waiting": "diverges",
        "paying": "diverges",
        "raising": "fails",
        "online": "fails",
        "busy": "hangs",
    }
    assert report["fits"] == 2
    assert report["unused"] == 1
    (warning,) = report["warnings"]
    assert (warning["run"], warning["left_out"]) == ("fewer", ["gone[0]"])
    assert report["elsewhere"] == {"removed": 1}
    assert "first" in found["other"]["step"]
    assert '"other" → "another"' in found["other"]["what"]
    assert found["other"]["remedy"]
    assert "KeyError" in found["raising"]["what"]
    assert "refused" in found["online"]["what"]
    assert "into a step" in found["online"]["remedy"]
    assert "was started with" in found["paying"]["what"]
    assert "cents: 100 → 999" in found["paying"]["what"]
    assert not (home / "executed").exists()
    assert (home / "runs.db").read_bytes() == before

    (home / "agents.py").write_text(NEW.replace("while True", "if False"), encoding="utf-8")
    words = check(home)
    assert words.returncode == 1
    assert "diverges" in words.stdout


def test_check_refuses_runs_whose_agent_the_code_does_not_declare_unless_other_workers_have_it(
    home: Path,
) -> None:
    renamed = OLD.replace("def removed(", "def moved(").replace("removed, paying", "moved, paying")
    (home / "agents.py").write_text(renamed, encoding="utf-8")
    done = check(home)
    assert done.returncode == 1, done.stderr
    assert 'keep its name: @nl.agent(name="removed")' in done.stderr
    assert "9 unfinished runs fit this code, 1 does not" in done.stderr

    allowed = check(home, "--other-agents")
    assert allowed.returncode == 0, allowed.stderr
    assert "1 run of agent 'removed', which this code does not declare" in allowed.stderr


MANY = """
import asyncio, os, signal
import ninelives as nl

@nl.agent
async def many(how: str) -> None:
    while how == "hangs":
        pass
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    raise KeyError(how)

async def main():
    async with nl.Runtime("sqlite:///runs.db") as rt:
        await rt.start(many, "hangs", id="hangs")
        await rt.start(many, "dies", id="dies")
        await asyncio.gather(*(rt.start(many, "fails", id=f"{'x' * 200}-{n}") for n in range(800)))

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_check_tells_of_more_problems_than_a_command_line_holds(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(MANY, encoding="utf-8")
    subprocess.run([sys.executable, "agents.py"], cwd=tmp_path, check=True, timeout=60)
    done = check(tmp_path, "--json", "--limit", "1")
    assert done.returncode == 1, done.stderr
    problems = json.loads(done.stdout)["problems"]
    assert len(problems) == 802
    assert [one["run"] for one in problems if one["fit"] == "hangs"] == ["hangs"]
    assert "SIGKILL" in next(one["what"] for one in problems if one["run"] == "dies")


ALIKE = """
import asyncio
import ninelives as nl

@nl.action
async def old(number: int) -> int:
    return number

@nl.decision
async def think(number: int) -> int:
    return number

@nl.agent
async def alike(number: int) -> None:
    await think(number)
    await old(number)
    await nl.receive("go")

async def main():
    async with nl.Runtime("sqlite:///runs.db") as rt:
        await asyncio.gather(*(rt.start(alike, n, id=f"run-{n}") for n in range(20)))
        await rt.work(until_idle=True)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_runs_that_one_edit_stops_are_one_finding_for_people(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(ALIKE, encoding="utf-8")
    subprocess.run([sys.executable, "agents.py"], cwd=tmp_path, check=True, timeout=60)
    (tmp_path / "agents.py").write_text(ALIKE.replace("old(", "new("), encoding="utf-8")
    stopped = check(tmp_path)
    assert stopped.returncode == 1
    assert stopped.stdout.count("diverges at old[0]: 20 runs of alike") == 1
    assert stopped.stdout.count('aliases=["old"]') == 1

    (tmp_path / "agents.py").write_text(ALIKE.replace("think(number)\n", "think(-number)\n"))
    again = check(tmp_path)
    assert again.returncode == 0
    assert again.stdout.count("executed again") == 1
    assert "executed again" not in again.stderr

    (tmp_path / "agents.py").write_text(ALIKE.replace("alike(", "similar("))
    assert '@nl.agent(name="alike")' in check(tmp_path).stderr


def test_code_that_cannot_be_loaded_is_a_wrong_call(home: Path) -> None:
    (home / "agents.py").write_text("import socket\nsocket.create_connection(('127.0.0.1', 9))\n")
    done = check(home)
    assert done.returncode == 2
    assert "refused" in done.stderr
    assert done.stderr.startswith("ninelives: UsageError: ")


def test_code_that_leaves_the_process_with_exit_code_0_is_not_taken_for_code_that_fits(home: Path) -> None:
    (home / "agents.py").write_text("import os\nos._exit(0)\n")
    done = check(home)
    assert done.returncode == 2
    assert "ended the process" in done.stderr


ENDED = """
import asyncio, os
import ninelives as nl

@nl.action
async def reserve(cause: str) -> int:
    if cause in os.environ["BROKEN"]:
        raise nl.Permanent("out of stock")
    return 1

@nl.action(resumable=False)
async def give_back(what: str) -> None:
    os._exit(0)

@nl.agent
async def retried() -> int:
    return await reserve("retried")

@nl.agent
async def undoing() -> int:
    nl.on_failure(give_back, "hotel")
    return await reserve("undoing")

async def main():
    async with nl.Runtime("sqlite:///runs.db") as rt:
        await rt.start(retried, id="retried")
        await rt.work(until_idle=True)
        await rt.start(undoing, id="undoing")
        await rt.work()

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_check_takes_runs_that_are_retried_or_undone_as_a_worker_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKEN", "retried undoing")
    (tmp_path / "agents.py").write_text(ENDED, encoding="utf-8")
    subprocess.run([sys.executable, "agents.py"], cwd=tmp_path, check=True, timeout=60)
    retry = [sys.executable, "-m", "ninelives", "retry", "retried", "--store", "sqlite:///runs.db"]
    subprocess.run(retry, cwd=tmp_path, check=True, timeout=60, capture_output=True)
    before = (tmp_path / "runs.db").read_bytes()
    changed = ENDED + "\n# another version\n"
    (tmp_path / "agents.py").write_text(changed, encoding="utf-8")
    fitting = check(tmp_path)
    assert fitting.returncode == 0, fitting.stdout
    assert "2 unfinished runs fit this code, 0 do not" in fitting.stderr

    (tmp_path / "agents.py").write_text(changed.replace("give_back", "return_it"), encoding="utf-8")
    done = check(tmp_path, "--json")
    assert done.returncode == 1, done.stderr
    (found,) = json.loads(done.stdout)["problems"]
    assert (found["run"], found["fit"]) == ("undoing", "diverges")
    assert 'aliases=["give_back"]' in found["remedy"]
    assert (tmp_path / "runs.db").read_bytes() == before
