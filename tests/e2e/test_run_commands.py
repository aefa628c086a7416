"""`ninelives run`, as a person types it: killed, stopped, doubled, mistyped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ninelives.core.model.run import Control
from ninelives.stores.sqlite import SqliteStore

AGENTS = """
import asyncio, os
from dataclasses import dataclass
from pathlib import Path
import ninelives as nl

@dataclass
class Ticket:
    order: str
    cents: int = 1

@nl.action
async def note(word: str) -> str:
    with open("effects", "a") as file:
        file.write(word + chr(10))
    return word.upper()

@nl.action
async def hold(word: str) -> str:
    with open("effects", "a") as file:
        file.write(word + chr(10))
    os.close(os.open("reached", os.O_WRONLY))   # a pipe: whoever reads it knows that we are here
    if not Path("go").exists():
        await asyncio.Event().wait()
    return word.upper()

@nl.agent
async def echo(word: str) -> str:
    return await note(word)

@nl.agent
async def loose(value):
    return value

@nl.agent
async def refund(ticket: Ticket, *, why: str = "none") -> dict[str, str]:
    nl.progress(1, 2, "half")
    nl.log.info("refunding" + chr(27) + "[31m")
    return {"order": await note(ticket.order), "why": why}

@nl.agent
async def three() -> list[str]:
    return [await note("one"), await note("two"), await hold("three")]

@nl.agent
async def broken(word: str) -> str:
    raise ValueError("no" + chr(10) + word)

@nl.agent
async def changed() -> str:
    return await note(os.environ["WORD"]) + await hold("x")
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with a file of agents in it, and a pipe by which a step tells that it was reached."""
    (tmp_path / "agents.py").write_text(AGENTS, encoding="utf-8")
    os.mkfifo(tmp_path / "reached")
    return tmp_path


@pytest.fixture
def stored(home: Path) -> Path:
    """The same directory with stores in it: a command that creates one says so."""
    for name in (".ninelives/runs.db", "other.db"):
        SqliteStore(home / name).close()
    return home


@pytest.mark.parametrize("words", [("run", "agents.py:echo", "x"), ("start", "agents.py:echo", "x")])
def test_a_command_that_creates_a_store_says_so(home: Path, words: tuple[str, ...]) -> None:
    store = ("--store", "sqlite:///mistyped/runs.db")
    line = f"ninelives: created a new store: {home.resolve()}/mistyped/runs.db\n"
    assert line in ninelives(home, *words, *store).stderr
    assert line not in ninelives(home, *words, *store).stderr


def environment(**more: str) -> dict[str, str]:
    """The environment of a command, without a store of our own."""
    return {name: value for name, value in os.environ.items() if name != "NINELIVES_STORE"} | more


def ninelives(home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a directory, with no terminal."""
    command = [sys.executable, "-m", "ninelives", *words]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=home, env=environment(**more), timeout=60, check=False
    )


def begin(home: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    """Begin the command and come back when its step is reached."""
    began = launch(home, *words, **more)
    (home / "reached").read_bytes()
    return began


def launch(home: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    """Begin the command."""
    return subprocess.Popen(
        [sys.executable, "-m", "ninelives", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home,
        env=environment(**more),
    )


def finish(home: Path, *words: str, **more: str) -> tuple[int, str, str]:
    """Run a command whose step is let go on."""
    (home / "go").touch()
    with begin(home, *words, **more) as began:
        out, err = began.communicate(timeout=60)
    return began.returncode, out, err


def effects(home: Path) -> list[str]:
    """What the agents did to the world."""
    return (home / "effects").read_text(encoding="utf-8").split()


def test_run_prints_the_result_and_running_again_executes_nothing(stored: Path) -> None:
    for said in ("", "ninelives: run 'a' already completed; nothing is executed again\n"):
        ran = ninelives(stored, "run", "agents.py:echo", "hello", "--id", "a")
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, '"HELLO"\n', said)
    assert effects(stored) == ["hello"]


def test_arguments_are_json_read_by_the_annotations(home: Path) -> None:
    words = ("run", "agents.py:refund", '{"order": "7", "cents": 5}', "--arg", "why=late", "--json")
    ran = ninelives(home, *words)
    told = json.loads(ran.stdout)
    assert told["result"] == {"order": "7", "why": "late"}
    assert (told["status"], told["resumed"], told["replayed"]) == ("completed", False, 0)
    assert "info: refunding\\x1b[31m" in ran.stderr
    assert "\x1b" not in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("word", "result"), [("42", '"42"'), ("a b", '"A B"'), ('"x"', '"X"'), ("{x", '"{X"'), ("-3", '"-3"')]
)
def test_a_word_that_fits_only_as_text_is_taken_as_text(home: Path, word: str, result: str) -> None:
    assert ninelives(home, "run", "agents.py:echo", "--", word).stdout == f"{result}\n"


def test_a_module_is_named_like_a_file(home: Path) -> None:
    assert ninelives(home, "run", "agents:loose", "[1, 2]").stdout == "[1,2]\n"


def test_unprintable_characters_of_a_result_are_escaped_and_mean_the_same(home: Path) -> None:
    word = "\x9b31m\u202e\U000e0001"
    ran = ninelives(home, "run", "agents.py:loose", json.dumps(word))
    assert ran.stdout.rstrip("\n").isprintable()
    assert json.loads(ran.stdout) == word


def test_killed_in_the_middle_it_goes_on_where_it_was(home: Path) -> None:
    with begin(home, "run", "agents.py:three", "--id", "t") as began:
        began.kill()
    code, out, err = finish(home, "run", "agents.py:three", "--id", "t")
    assert (code, out) == (0, '["ONE","TWO","THREE"]\n')
    assert "resumed run 't': 2 recorded steps replayed" in err
    assert effects(home) == ["one", "two", "three", "three"]


def test_two_at_once_work_once_and_print_the_same(home: Path) -> None:
    words = ("run", "agents.py:three", "--id", "t")
    (home / "go").touch()
    with launch(home, *words) as first, launch(home, *words) as second:
        (home / "reached").read_bytes()
        answers = [one.communicate(timeout=60)[0] for one in (first, second)]
    assert answers == ['["ONE","TWO","THREE"]\n'] * 2
    assert effects(home) == ["one", "two", "three"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_it_says_how_to_go_on_and_costs_no_life(stored: Path, number: int, code: int) -> None:
    with begin(stored, "run", "agents.py:three", "--id", "t") as began:
        began.send_signal(number)
        _, err = began.communicate(timeout=60)
    assert began.returncode == code
    assert err.startswith("ninelives: stopped; to resume: ninelives run agents.py:three --id t")
    assert "Traceback" not in err
    store = SqliteStore(stored / ".ninelives/runs.db")
    run = store.read_run("t")
    assert run is not None
    assert (run.state, run.deaths, store.list_sessions()) == ("checkpointed", 0, [])
    store.close()


def test_a_run_that_fails_says_why_and_ends_with_1(stored: Path) -> None:
    ran = ninelives(stored, "run", "agents.py:broken", "way", "--id", "b")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.splitlines() == [
        "ninelives: run 'b' failed: ValueError: no\\nway",
        "ninelives: inspect it with: ninelives show b",
        "ninelives: once the cause is fixed: ninelives retry b",
    ]
    told = json.loads(ninelives(stored, "run", "agents.py:broken", "way", "--id", "b", "--json").stdout)
    assert (told["status"], told["error"]["type"], told["resumed"]) == ("failed", "ValueError", True)


def test_what_it_says_to_do_next_is_for_the_store_that_was_named(stored: Path) -> None:
    store = ("--store", "sqlite:///other.db")
    ran = ninelives(stored, "run", "agents.py:broken", "way", "--id", "b", *store)
    assert [line.partition(": ")[2] for line in ran.stderr.splitlines()[1:]] == [
        "inspect it with: ninelives show b --store sqlite:///other.db",
        "once the cause is fixed: ninelives retry b --store sqlite:///other.db",
    ]


def test_a_run_that_contradicts_its_journal_waits_for_a_person(home: Path) -> None:
    with begin(home, "run", "agents.py:changed", "--id", "c", WORD="before") as began:
        began.kill()
    ran = ninelives(home, "run", "agents.py:changed", "--id", "c", WORD="after")
    assert ran.returncode == 3
    assert "waits for a person" in ran.stderr
    assert ". Nothing was executed. " in ran.stderr
    assert "before" in ran.stderr
    assert effects(home) == ["before", "x"]
    shown = json.loads(ninelives(home, "show", "c", "--json").stdout)
    assert (shown["status"], [item["kind"] for item in shown["inbox"]]) == ("escalated", ["divergence"])


def test_a_paused_run_waits_for_a_person(home: Path) -> None:
    ninelives(home, "run", "agents.py:echo", "x", "--id", "p", "--no-wait")
    store = SqliteStore(home / ".ninelives/runs.db")
    store.control_run("p", Control.PAUSE)
    store.close()
    ran = ninelives(home, "run", "agents.py:echo", "x", "--id", "p")
    assert ran.returncode == 3
    assert "it is paused" in ran.stderr


def test_no_wait_only_starts_it(home: Path) -> None:
    ran = ninelives(home, "run", "agents.py:echo", "x", "--id", "later", "--no-wait")
    assert (ran.returncode, ran.stdout) == (0, "later\n")
    assert not (home / "effects").exists()
    assert ninelives(home, "run", "agents.py:echo", "x", "--id", "later").stdout == '"X"\n'


def test_a_run_without_a_name_tells_the_one_it_got(home: Path) -> None:
    ran = ninelives(home, "run", "agents.py:echo", "x")
    name = ran.stderr.split()[-1]
    assert name.startswith("echo-")
    assert ninelives(home, "run", "agents.py:echo", "x", "--id", name).stdout == '"X"\n'


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("agents.py:nobody",), "Known agents: broken, changed, echo, loose, refund, three"),
        (("agents.py",), "does not name the agent"),
        (("nowhere.py:echo",), "there is no file nowhere.py"),
        (("nowhere:echo",), "there is no module 'nowhere'"),
        ((".:echo",), "is a directory"),
        (("bad.py:echo",), "bad.py:2:"),
        (("raises.py:echo",), "raises.py:1"),
        (("leaves.py:echo",), "SystemExit"),
        (("empty.py:echo",), "Declare one in empty.py with @nl.agent"),
        (("missing.py:echo",), "No module named 'nothing_of_the_kind'"),
        (("agents.py:echo",), "missing a required argument: 'word'"),
        (("agents.py:echo", "a", "b"), "2 arguments given, it takes 1"),
        (("agents.py:echo", "a", "--arg", "nose=1"), "it has no parameter 'nose'"),
        (("agents.py:echo", "a", "--arg", "word"), "NAME=JSON"),
        (("agents.py:loose", '{"a": 1'), "argument 1 (value) is not valid JSON"),
        (("agents.py:refund", '{"cents": 1}'), "the given Ticket has no 'order'"),
        (("agents.py:refund", '{"order": "1", "cents": "x"}'), "$.cents"),
        (("agents.py:echo", "a", "--id", "\x1b[31m"), "not printable"),
        (("agents.py:echo", "a", "--store", "mysql://x"), "names no store"),
    ],
)
def test_a_wrong_call_says_what_is_wrong_starts_nothing_and_ends_with_2(
    home: Path, words: tuple[str, ...], said: str
) -> None:
    (home / "bad.py").write_text("import os\ndef (:\n", encoding="utf-8")
    (home / "raises.py").write_text("1 / 0\n", encoding="utf-8")
    (home / "leaves.py").write_text("raise SystemExit(0)\n", encoding="utf-8")
    (home / "empty.py").write_text("", encoding="utf-8")
    (home / "missing.py").write_text("import nothing_of_the_kind\n", encoding="utf-8")
    ran = ninelives(home, "run", *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "\x1b" not in ran.stderr
    assert not (home / ".ninelives").exists()


def test_the_same_id_with_other_arguments_is_refused(home: Path) -> None:
    ninelives(home, "run", "agents.py:echo", "x", "--id", "a")
    ran = ninelives(home, "run", "agents.py:echo", "y", "--id", "a")
    assert ran.returncode == 2
    assert ran.stderr.startswith("ninelives: IdConflict")
    assert effects(home) == ["x"]


def test_an_unusable_store_ends_with_4_before_anything_is_done(home: Path) -> None:
    (home / "runs.db").write_bytes(b"")
    ran = ninelives(home, "run", "agents.py:echo", "x", NINELIVES_STORE="sqlite:///runs.db")
    assert ran.returncode == 4
    assert "runs.db is empty" in ran.stderr
    assert not (home / "effects").exists()


def test_when_nobody_reads_the_result_the_work_is_done_and_it_ends_quietly(stored: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ninelives", "run", "agents.py:echo", "x", "--id", "a"]
    ran = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, cwd=stored, env=environment(), timeout=60, check=False
    )
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (141, b"")
    assert effects(stored) == ["x"]


def test_a_file_may_be_called_like_a_standard_module(home: Path) -> None:
    (home / "jobs").mkdir()
    (home / "agents.py").rename(home / "jobs/signal.py")
    assert ninelives(home, "run", "jobs/signal.py:echo", "x").stdout == '"X"\n'


def test_a_file_in_a_package_may_import_from_beside_it(home: Path) -> None:
    package = home / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (home / "agents.py").rename(package / "agents.py")
    (package / "desk.py").write_text("from .agents import echo\n", encoding="utf-8")
    assert ninelives(home, "run", "shop/desk.py:echo", "x").stdout == '"X"\n'
    assert ninelives(home, "run", "shop.desk:echo", "x").stdout == '"X"\n'
