"""What is read from the user's source: clean-up code, what changes from life to life, returns."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninelives.chaos.findings import source_code

CODE = """
async def agent():
    began = time.time()
    try:
        await step(began)
    except ValueError:
        recover()
    except (KeyError, asyncio.CancelledError):
        swallow()
    finally:
        with lock:
            clean()
    after()

def stamp():
    return datetime.now()

async def late():
    began = time.time()
    await other(stamp())

class Lock:
    def __exit__(self, *_):
        release()

@nl.action
def one(flag):
    def inner():
        return 0
    return inner()

@nl.action
def two(flag):
    if flag:
        return 1
    return 2

@nl.action
async def jitter(number):
    return random.random() + stamp()

async def racing():
    calls = [jitter(1), jitter(2)]
    for one in asyncio.as_completed(calls):
        await one

def around():
    @nl.decision
    def inner_step():
        return uuid.uuid4()
    return inner_step()

def ordered():
    for word in set(words):
        step(word)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agent.py"
    path.write_text(CODE)
    return path


def at(file: Path, text: str) -> str:
    (number,) = [n for n, line in enumerate(CODE.splitlines(), 1) if text in line]
    return f"{file}:{number}"


def test_cleanup_is_finally_and_what_catches_the_end_of_the_process(file: Path) -> None:
    assert source_code.is_cleanup(at(file, "clean()"))
    assert source_code.is_cleanup(at(file, "swallow()"))
    assert source_code.is_cleanup(at(file, "release()"))
    for text in ("recover()", "await step", "after()"):
        assert not source_code.is_cleanup(at(file, text)), text


def test_suspects_are_named_with_their_line_and_remedy(file: Path) -> None:
    (suspect,) = source_code.suspects(at(file, "await step"))
    assert (suspect.line, suspect.text, suspect.remedy) == (3, "time.time()", "nl.now()")
    assert source_code.suspects(at(file, "step(word)"))[0].remedy == "sorted(...)"


def test_in_a_steps_body_nothing_is_suspected(file: Path) -> None:
    assert source_code.suspects(at(file, "async def jitter")) == []
    assert source_code.suspects(at(file, "return random.random() + stamp()")) == []
    assert source_code.suspects(at(file, "return inner_step()")) == []


def test_a_step_that_is_called_as_a_task_is_found_where_the_run_names_it(file: Path) -> None:
    step, agent = at(file, "async def jitter"), at(file, "async def racing")
    assert source_code.caller(step, agent) == at(file, "calls = [")
    assert source_code.caller(at(file, "await other"), agent) == at(file, "await other"), "it is no step"
    assert source_code.caller(at(file, "def two"), agent) == agent, "nobody names it"
    (suspect,) = source_code.suspects(source_code.caller(step, agent))
    assert (suspect.text, suspect.remedy) == ("the order of asyncio.as_completed()", "nl.gather()")


def test_of_several_calls_of_a_step_the_one_that_was_meant_is_named(tmp_path: Path) -> None:
    path = tmp_path / "agent.py"
    path.write_text("@nl.action\ndef save(): ...\n\n@nl.agent\ndef agent():\n    save()\n    save()\n")
    step, agent = f"{path}:1", f"{path}:4"
    assert [source_code.caller(step, agent, n) for n in (0, 1, 2)] == [f"{path}:{n}" for n in (6, 7, 6)]


def test_the_only_return_is_the_place_of_a_value(file: Path) -> None:
    assert source_code.return_line(at(file, "def one")) == at(file, "return inner()")
    assert source_code.return_line(at(file, "def two")) == at(file, "def two"), "there are two of them"


def test_a_file_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def (:")
    for place in (f"{broken}:1", f"{tmp_path}/absent.py:3", "nowhere"):
        assert not source_code.is_cleanup(place)
        assert source_code.suspects(place) == []
        assert source_code.return_line(place) == place


def test_what_a_function_calls_is_suspected_after_what_it_says_itself(file: Path) -> None:
    told = [suspect.text for suspect in source_code.suspects(at(file, "other(stamp())"))]
    assert told == ["time.time()", "datetime.now()"]
