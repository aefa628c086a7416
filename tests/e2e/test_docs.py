"""Every block in README and docs runs, and every link leads somewhere."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ninelives.stores.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]
TOP = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
PAGES = [*TOP, *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TESTING = "docs/testing.md"  # its blocks are tests, and are run as such
RUNBOOK = "docs/runbook.md"  # its blocks are run by tests/metrics, on a store where all of it has happened
ADOPTION = "docs/adoption.md"  # its blocks are run one after the other, as a reader runs them
LANGUAGES = {"python", "sh", "console", "mermaid", ""}


def blocks(language: str) -> list[tuple[str, str]]:
    """Return (page, content) of all blocks in a language."""
    return [
        (page.relative_to(ROOT).as_posix(), content)
        for page in PAGES
        for found, content in BLOCK.findall(page.read_text(encoding="utf-8"))
        if found == language
    ]


def test_every_block_is_in_a_language_that_is_tested() -> None:
    for page in PAGES:
        for language, _ in BLOCK.findall(page.read_text(encoding="utf-8")):
            assert language in LANGUAGES, page


@pytest.mark.parametrize(("page", "content"), [block for block in blocks("python") if block[0] != TESTING])
def test_python_block_runs_and_runs_again(page: str, content: str, tmp_path: Path) -> None:
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-c", content],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, f"{page}: {ran.stderr}"


TESTS = [content for page, content in blocks("python") if page == TESTING]


@pytest.mark.parametrize("contents", [*([one] for one in TESTS), TESTS], ids=lambda them: str(len(them)))
def test_test_blocks_pass_alone_and_in_one_directory(contents: list[str], tmp_path: Path) -> None:
    for content in contents:
        name = content.split()[1]
        assert name.startswith("test_")
        (tmp_path / name).write_text(content, encoding="utf-8")
    plugins = ("-p", "ninelives.testing.plugin", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", *plugins, "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout


def test_the_readme_agent_says_what_the_readme_says(tmp_path: Path) -> None:
    ((_, code),) = [block for block in blocks("python") if block[0] == "README.md"]
    ((_, session),) = blocks("console")
    (tmp_path / "agent.py").write_text(code, encoding="utf-8")
    for part in session.split("$ ")[1:]:
        command, *shown = part.splitlines()
        environment = {**os.environ, **({"DIE": "1"} if command.startswith("DIE=1 ") else {})}
        ran = subprocess.run(
            [sys.executable, "-u", "agent.py"], cwd=tmp_path, env=environment, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        printed = ran.stdout.splitlines()
        if ran.returncode == -signal.SIGKILL:
            printed.append("Killed")
        assert printed == shown, ran.stderr


def test_the_ground_journal_goes_on_after_kill_9(tmp_path: Path) -> None:
    ((_, content),) = [block for block in blocks("python") if block[0] == "docs/ground.md"]
    command = [sys.executable, "-u", "-c", content]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = [line for line, _ in zip(writer.stdout, range(30), strict=False)]
        writer.send_signal(signal.SIGKILL)
        told += list(writer.stdout)
    acknowledged = [int(line.split()[0]) for line in told if line.endswith("committed\n")]
    assert acknowledged
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    durable = int(again.stdout.split()[0])
    assert durable > acknowledged[-1]
    store = SqliteStore(tmp_path / "journal/runs.db")
    assert len(store.load_journal("ticket-42", since=0).records) == 100
    assert store.verify() == []
    store.close()


WITH_SHELL = sorted({page for page, _ in blocks("sh")} - {RUNBOOK, ADOPTION})


@pytest.mark.parametrize("page", WITH_SHELL)
def test_the_blocks_of_a_page_run_one_after_the_other_from_an_empty_directory_on(
    page: str, tmp_path: Path
) -> None:
    for language, content in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if language == "sh":
            shell(content, page, tmp_path)
        elif language == "python":
            ran = subprocess.run(
                [sys.executable, "-c", content], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                check=False,
            )  # fmt: skip
            assert ran.returncode == 0, f"{page}: {ran.stderr}"


def test_the_stages_of_the_adoption_end_as_they_say_from_an_empty_directory_on(tmp_path: Path) -> None:
    stages = [content for page, content in blocks("sh") if page == ADOPTION]
    assert len(stages) == 3
    for content in stages:
        shell(content, ADOPTION, tmp_path)


def shell(content: str, page: str, home: Path) -> None:
    """Run a block."""
    if "examples/" in content and not (home / "examples").exists():
        (home / "examples").symlink_to(ROOT / "examples")
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    lines = []
    for line in content.splitlines():
        if line.startswith("make "):
            # The targets themselves are what runs this test; they must only be there.
            assert line.split("#")[0].split()[1] in targets, page
        else:
            lines.append(line)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["sh", "-ec", "\n".join(lines)], cwd=home, env={**os.environ, "PATH": path}, capture_output=True,
        text=True, timeout=180, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, f"{page}: {ran.stderr}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_every_manual_is_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    missing = [page.name for page in (ROOT / "docs").glob("*.md") if f"]({page.name})" not in index]
    assert missing == ["README.md"]
