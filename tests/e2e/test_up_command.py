"""`ninelives up` on a terminal: a live picture of workers and runs; plain lines in a log."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

import ninelives as nl
from ninelives.cli.up_screen import View, picture, view
from ninelives.testing import Sandbox

PATIENCE_SECONDS = 120
AGENTS = """
import ninelives as nl

@nl.action
async def greet(name: str) -> str:
    print("greeting", name)
    return f"hello {name}"

@nl.agent
async def hello(name: str) -> str:
    return await greet(name)
"""


def drawn(seen: View) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(picture(seen))
    return captured.get()


def test_on_a_terminal_workers_and_runs_are_shown_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS, encoding="utf-8")
    command = [sys.executable, "-m", "ninelives"]
    start = [*command, "run", "agents.py:hello", "--no-wait", "--id", "one", "world"]
    subprocess.run(start, cwd=tmp_path, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
    ours, theirs = pty.openpty()
    shown = bytearray()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    with subprocess.Popen(
        [*command, "up", "agents.py", "--processes", "1"],
        cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(theirs)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while b"1 completed in the last minute" not in shown:
            assert time.monotonic() < deadline, shown.decode(errors="replace")
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGTERM)
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:  # Linux says so when the other side is closed
            pass
        assert process.wait(PATIENCE_SECONDS) == 0
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode(errors="replace"))
    for part in ("worker 1 is ready", "worker 1: greeting world", "SIGTERM: stopping"):
        assert part in text, part
    assert re.search(r"worker +pid +runs +up", text)


def test_the_picture_counts_by_state_and_shows_trouble_and_no_control_characters() -> None:
    with Sandbox() as sandbox:

        @nl.agent
        async def sleeps() -> None:
            await nl.sleep(60)

        @nl.agent
        async def ends() -> None: ...

        sandbox.start(sleeps)
        sandbox.run(ends)
        sandbox.start(sleeps)
        sandbox.work()
        sandbox.start(ends)
        seen = view(sandbox.store)
        assert "1 pending, 0 running, 2 checkpointed, 0 escalated; 1 completed" in drawn(seen)
    assert "the store: away" in drawn(View(trouble="away\x1b[2J"))
    assert "\x1b[2J" not in drawn(View(trouble="away\x1b[2J"))
