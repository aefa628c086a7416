"""The runbook: every alert's link leads to a section; its commands are run, and print what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ninelives.ops.metrics.rules import ALERTS
from tests.metrics.situation import Situation

ROOT = Path(__file__).parents[2]
_SECTION = re.compile(r"^## (.+)\n((?:(?!^## ).*\n)*)", re.MULTILINE)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_VARYING = re.compile(r"vm-\S+|sqlite:\S+|on \S+ was|[0-9a-f]{16}|\d+")


def sections() -> dict[str, str]:
    """Return the sections of the page by their anchors."""
    page = (ROOT / "docs/runbook.md").read_text(encoding="utf-8")
    return {title.lower().replace(" ", "-"): text for title, text in _SECTION.findall(page)}


def test_every_link_of_an_alert_leads_to_its_section() -> None:
    known = sections()
    assert list(known) == [rule.anchor for rule in ALERTS]
    for rule in ALERTS:
        text = known[rule.anchor]
        assert f"**{rule.name}** ({rule.severity})" in text
        assert "Look here" in text
        assert "Do this" in text or "| do this |" in text


@pytest.fixture(scope="module")
def situation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Situation]:
    """Yield the store in which all of it has happened."""
    made = Situation(tmp_path_factory.mktemp("situation"))
    yield made
    made.desk.close()


def test_every_block_runs_and_says_what_the_page_says(situation: Situation) -> None:
    environment = {
        **os.environ,
        "NINELIVES_STORE": situation.home.url,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    printed: dict[str, str] = {}
    for anchor, text in sections().items():
        blocks = _BLOCK.findall(text)
        assert [language for language, _ in blocks] == ["sh", ""], anchor
        commands, shown = (content for _, content in blocks)
        for command in commands.splitlines():
            if command not in printed:
                done = subprocess.run(
                    command.split(), env=environment, cwd=situation.home.path, capture_output=True, text=True,
                    timeout=60, check=False,
                )  # fmt: skip
                # doctor exits 1 when it warns, as it must here.
                assert done.returncode in (0, 1), (anchor, command, done.stderr)
                assert "Error" not in done.stderr, done.stderr
                printed[command] = plain(done.stdout)
        said = "\n".join(printed[command] for command in commands.splitlines())
        for line in shown.splitlines():
            assert plain(line) in said, (anchor, line, said)


def plain(text: str) -> str:
    """Leave out what differs from store to store."""
    return "\n".join(" ".join(_VARYING.sub("0", line).split()) for line in text.splitlines())
