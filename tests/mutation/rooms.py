"""The rooms under mutation, each with its own tests, and mutmut run on one of them.

mutmut has a directory of its own for each room, with links to the code and the tests, and copies both from
there: nothing of the tree is changed. A room is judged by its own unit tests alone, not by what an engine or
a crash test would notice too: so it takes minutes, not hours.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec
from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "mutants" / "rooms"
WORDS = r'^\s+(remedy=)?"[^"]+ [^"]*"[,)]*$'
"""Lines that hold nothing but a sentence for people are not mutated: nobody is to test each word."""

_LEFT_OUT = "not planted_bug and not (order_of_events and plain)"
"""Tests of a test's own model; the longer of two explorations."""

_KILLED = ("killed", "timeout")
_KEPT = "result.json"
_LINE = re.compile(r"^\s+(?P<name>\S+): (?P<status>.+)$")


class Room(Struct, frozen=True):
    """A module, what rests on it, and the tests that are to notice a change of it."""

    path: str
    holds: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the room's name: the path of its module, without the ending."""
        return self.path.removesuffix(".py")


class Mutant(Struct, frozen=True):
    """A change that no test has noticed: the function, its lines before, and after."""

    function: str
    before: str
    after: str


class Result(Struct, frozen=True):
    """What became of a room's mutants: on which day, by which tools, in which time."""

    room: Room
    mutants: int
    survivors: list[Mutant]
    seconds: float
    day: str
    tools: str

    @property
    def killed(self) -> int:
        """Return how many were noticed."""
        return self.mutants - len(self.survivors)


ROOMS = (
    Room("core/model/transitions.py", "the states of a run", ("tests/unit/test_transitions.py",)),
    Room(
        "core/rules/run_rules.py",
        "a run's row: fencing, claims, controls, parks, ends",
        ("tests/unit/test_runs.py",),
    ),
    Room("core/rules/dedup.py", "the dedup table", ("tests/unit/test_dedup.py",)),
    Room(
        "core/journal/replay.py",
        "what a journal says to code that runs again",
        ("tests/unit/test_replay.py", "tests/unit/test_replay_retries.py"),
    ),
    Room(
        "core/journal/settlement.py", "the fate of a non-resumable action", ("tests/unit/test_settlement.py",)
    ),
    Room("core/rules/deaths.py", "what a death costs", ("tests/unit/test_lives.py",)),
)


def run(room: Room, children: int) -> Result:
    """Let mutmut make the room's mutants and run its tests on each, so many processes at a time."""
    place, began = _make_place(room), time.monotonic()
    said = _mutmut(place, "run", "--max-children", str(children))
    (place / "run.log").write_text(said.stdout + said.stderr)
    if said.returncode != 0:
        raise RuntimeError(f"mutmut could not run {room.name}: see {place / 'run.log'}")
    mutants, survivors = _read(place)
    tools = f"mutmut {version('mutmut')}, pytest {version('pytest')}, Python {platform.python_version()}"
    day, seconds = f"{datetime.now(UTC):%Y-%m-%d}", time.monotonic() - began
    result = Result(room, mutants, survivors, seconds, day, tools)
    (place / _KEPT).write_bytes(msgspec.json.encode(result))
    return result


def last(room: Room) -> Result | None:
    """Return what the room's last run has come to, if there was one."""
    kept = _place(room) / _KEPT
    return msgspec.json.decode(kept.read_bytes(), type=Result) if kept.exists() else None


def _read(place: Path) -> tuple[int, list[Mutant]]:
    """Return how many mutants mutmut has made in a directory, and those that no test has noticed."""
    answer = _mutmut(place, "results", "--all", "true").stdout
    known = [match for match in map(_LINE.match, answer.splitlines()) if match]
    left = [match["name"] for match in known if match["status"] not in _KILLED]
    return len(known), [mutant_of(name, _mutmut(place, "show", name).stdout) for name in left]


def mutant_of(name: str, diff: str) -> Mutant:
    """Return a mutant by mutmut's name for it and the difference that it makes."""
    function = name.rpartition(".")[2].rpartition("__mutmut_")[0].removeprefix("x_").removeprefix("xǁ")
    before, after = (_lines_with(sign, diff) for sign in "-+")
    return Mutant(function.replace("ǁ", "."), before, after)


def _lines_with(sign: str, diff: str) -> str:
    lines = (line for line in diff.splitlines() if line.startswith(sign) and not line.startswith(sign * 3))
    return " ".join(line[1:].strip() for line in lines)


def _place(room: Room) -> Path:
    return BUILD / room.name.replace("/", "-")


def _make_place(room: Room) -> Path:
    """Make a directory in which mutmut finds the room, and nothing of an earlier run."""
    place = _place(room)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for linked in ("src", "tests", "pyproject.toml"):
        (place / linked).symlink_to(ROOT / linked)
    settings = {
        "source_paths": ["src/ninelives"],
        "only_mutate": [f"src/ninelives/{room.path}"],
        "do_not_mutate_patterns": [WORDS],
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-k", _LEFT_OUT],
        "pytest_add_cli_args_test_selection": room.tests,
        "timeout_constant": ["4"],  # a busy machine must not be taken for a mutant that hangs
    }
    lines = ("\n    ".join((f"{name} =", *values)) for name, values in settings.items())
    (place / "setup.cfg").write_text("\n".join(("[mutmut]", *lines, "")))
    return place


def _mutmut(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("mutmut")
    return subprocess.run([command, *arguments], cwd=place, capture_output=True, text=True, check=False)
