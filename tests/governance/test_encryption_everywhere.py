"""With encryption, no byte of a store has what users' code said; killed runs go on wherever the key is."""

from __future__ import annotations

import base64
import gzip
import os
import subprocess
import sys
from pathlib import Path

from tests.crash.stores import address, is_file
from tests.governance.leaks import CANARY, CORE, contents, leaked

AGENTS = str(Path(__file__).with_name("encrypted_agents.py"))
FIRST, SECOND, OTHER = (base64.b64encode(bytes([one]) * 32).decode() for one in (1, 2, 3))
CLI = ("-m", "ninelives")


def process(home: Path, *words: str, keys: str = "", code: int | None = 0, store: str = "") -> str:
    """Run Python with keys in its environment; return all that it prints."""
    environment = {"CANARY": CANARY, "SECRETS_HOME": str(home), "NINELIVES_STORE": store or address(home)}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=home,
        env={**os.environ, **environment, "NINELIVES_KEYS": keys},
        capture_output=True,
        timeout=120,
        check=False,
    )
    said = (done.stdout + done.stderr).decode(errors="surrogateescape")
    assert code is None or done.returncode == code, said
    return said


def effects(home: Path) -> list[str]:
    """Return the effects that were noted outside."""
    file = home / "effects"
    return file.read_text().split("\n")[:-1] if file.exists() else []


def test_no_byte_of_the_store_has_what_users_said(ground: Path) -> None:
    url = address(ground)
    process(ground, AGENTS, url, "start", keys=FIRST)
    assert leaked(contents(ground)) == []

    # No key, or another one: refused by name, before anything is done.
    for keys in ("", OTHER):
        said = process(ground, AGENTS, url, "work", keys=keys, code=1)
        assert "is encrypted with the key" in said
        assert "Set $NINELIVES_KEYS" in said
    assert effects(ground) == []

    process(ground, AGENTS, url, "work", keys=FIRST, code=-9)  # in the middle of a turn
    assert leaked(contents(ground)) == []
    process(ground, AGENTS, url, "work", keys=FIRST, code=-9)  # inside an action that is not resumable
    assert leaked(contents(ground)) == []
    assert "completed" in process(ground, AGENTS, url, "work", keys=FIRST)
    assert leaked(contents(ground)) == []
    assert sorted(effects(ground)) == ["look"] * 3 + ["pay 1", "pay 2", "pay 3", "send"]

    # Whoever has the key sees what is in it, but no secret; without it, runs are listed all the same.
    assert CORE in process(ground, *CLI, "show", "all", "--limit", "0", keys=FIRST)
    for words in (
        ["show", "all", "--limit", "0"],
        ["show", "all", "--json"],
        ["snapshot", "all", "--out", "-s"],
    ):
        said = process(ground, *CLI, *words, keys=FIRST)
        assert "token of" not in said
        assert '"***"' in said or words[0] == "snapshot"
    snapshot = (ground / "-s").read_text()
    assert CORE in snapshot
    assert "token of" not in snapshot
    assert base64.b64encode(b"xxtoken of")[4:-4].decode() not in snapshot
    (ground / "-s").unlink()
    blind = process(ground, *CLI, "show", "all", code=4)
    assert "encrypted with the key" in blind
    blind = process(ground, *CLI, "watch", "all", code=4)
    assert ("encrypted with the key" in blind, "damaged" in blind) == (True, False)
    blind = process(ground, *CLI, "doctor", code=4)
    assert "fail  keys " in blind
    assert "ok    size " in blind, "what needs no key is checked all the same"
    listed = process(ground, *CLI, "ps", "--all")
    assert "all " in listed
    assert "broken" in listed
    assert "no faults" in process(ground, *CLI, "store", "verify")
    assert "no faults" in process(ground, *CLI, "store", "verify", keys=FIRST)
    for words in (["ps", "--all"], ["inbox"], ["status"], ["show", "broken"], ["snapshot", "broken"]):
        said = process(ground, *CLI, *words, code=None)
        assert leaked([(" ".join(words), said.encode(errors="surrogateescape"))]) == []


def test_copies_stay_encrypted_and_go_on_elsewhere(ground: Path) -> None:
    url = address(ground)
    process(ground, AGENTS, url, "work", keys=FIRST, code=-9)
    process(ground, AGENTS, url, "work", keys=FIRST, code=-9)
    # Neither an export nor an import needs the key; an unfinished run is held, its open start is in doubt.
    process(ground, *CLI, "export", "--all", "--to", "runs.export")
    assert leaked([("export", gzip.decompress((ground / "runs.export").read_bytes()))]) == []
    there = ground / "there"
    there.mkdir()
    other = f"sqlite:///{there / 'runs.db'}"
    said = process(there, *CLI, "import", str(ground / "runs.export"), store=other)
    assert "in doubt" in said or "held" in said or "paused" in said
    assert leaked(contents(there)) == []
    # The copy says that it is encrypted, and opens with the key.
    assert "is encrypted with the key" in process(there, AGENTS, other, "work", code=1, store=other)
    assert CORE in process(there, *CLI, "show", "all", "--limit", "0", keys=FIRST, store=other)
    assert "no faults" in process(there, *CLI, "store", "verify", store=other)
    if is_file(ground):
        copy = ground / "copy"
        copy.mkdir()
        process(ground, *CLI, "store", "backup", str(copy / "runs.db"))
        assert leaked(contents(copy)) == []
        assert CORE in process(ground, *CLI, "show", "all", keys=FIRST, store=f"sqlite:///{copy / 'runs.db'}")
