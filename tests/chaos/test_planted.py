"""Five agents with one mistake each: chaos finds it, and names its class and its line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ninelives.chaos.findings import Mistake
from tests.chaos.commands import chaos

PLANTED = Path(__file__).parent / "planted"
MISTAKES = {
    "outside": Mistake.OUTSIDE,
    "argument": Mistake.ARGUMENT,
    "repeated": Mistake.REPEATED,
    "value": Mistake.VALUE,
    "cleanup": Mistake.CLEANUP,
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found_and_named_with_its_line(name: str, tmp_path: Path) -> None:
    agent = tmp_path / f"{name}.py"
    shutil.copy(PLANTED / agent.name, agent)
    (line,) = [n for n, text in enumerate(agent.read_text().splitlines(), 1) if "# MISTAKE" in text]
    ran = chaos(
        tmp_path, f"{name}.py:support", "it is broken", "--at", "every-step", "--seconds", "1", "--json"
    )
    assert ran.code == 1, ran.err
    (finding,) = ran.report["findings"]
    assert (finding["mistake"], finding["file"], finding["line"]) == (MISTAKES[name], str(agent), line)
    assert finding["what"]
    assert finding["remedy"]
    assert [path.name for path in tmp_path.iterdir()] == [agent.name], "it worked on copies only"
