"""A canary goes through every path that a value has, in processes that die; nothing that is left has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.crash.stores import address
from tests.governance.leaks import CANARY, contents, leaked

AGENTS = Path(__file__).with_name("secret_agents.py")
RUNS = ("everywhere", "doubtful", "broken", "turns")


def process(home: Path, *words: str, code: int | None = 0) -> str:
    """Run Python with the secret in its environment; return all that it prints."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=home,
        env={**os.environ, "CANARY": CANARY, "SECRETS_HOME": str(home), "NINELIVES_STORE": address(home)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    said = (done.stdout + done.stderr).decode(errors="surrogateescape")
    assert code is None or done.returncode == code, said
    return said


def test_no_byte_of_the_store_and_of_any_output_has_the_secret(ground: Path) -> None:
    out = {"killed": process(ground, str(AGENTS), address(ground), code=-9)}
    out["worker"] = process(ground, str(AGENTS), address(ground))
    said = out["worker"]
    # The remedy is named for each path that would have written it.
    for path in ("$.deep[0]", "returns_model", "$.password", "child(secret)", "$[0]", "undo(secret)"):
        assert path in said, (path, said)
    for what in ("'pay:*** (CANARY)'", "the answer to nl.ask('the code?')", "the signal 'code'"):
        assert what in said, (what, said)
    assert said.count("read the secret from the environment") >= 9
    assert "401 ***" in said
    assert "5 wired" in said

    cli = ["-m", "ninelives"]
    for run in RUNS:
        for words in (["show", run], ["show", run, "--json", "--limit", "0"], ["snapshot", run]):
            out[" ".join(words)] = process(ground, *cli, *words)
    out["export"] = process(ground, *cli, "export", *RUNS, "--to", "runs.export", code=None)
    for words in (["ps", "--all"], ["inbox"], ["inbox", "--json"], ["status"], ["recoveries"]):
        out[" ".join(words)] = process(ground, *cli, *words, code=None)
    assert "***" in out["inbox --json"]
    assert "*** (CANARY)" in out["show everywhere --json --limit 0"]
    assert "401 ***" in out["show everywhere"]

    places = [(name, text.encode(errors="surrogateescape")) for name, text in out.items()]
    assert leaked(places) == []
    assert leaked(contents(ground)) == []


def test_the_search_finds_what_is_there(ground: Path) -> None:
    program = (
        "import asyncio, os, ninelives as nl\n"
        "@nl.agent\nasync def leaky(text: str) -> str: return text\n"
        "async def main():\n"
        "    async with nl.Runtime() as rt: await rt.run(leaky, os.environ['CANARY'])\n"
        "asyncio.run(main())\n"
    )
    (ground / "leaky.py").write_text(program)
    process(ground, "leaky.py")
    found = leaked(contents(ground))
    assert len(found) >= 2, found
