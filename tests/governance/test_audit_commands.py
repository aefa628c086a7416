"""`ninelives audit` as people use it, and the follower that `ninelives up` keeps running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ninelives.governance.audit_log import entries, tiles
from ninelives.ops.status import status
from ninelives.stores.open import open_store
from tests.governance.audit_scene import of_kind

_NINELIVES = Path(sys.executable).with_name("ninelives")
_AGENT = """
import ninelives as nl

@nl.agent
async def hello(name: str) -> str:
    return f"Hello {name}"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(_AGENT, encoding="utf-8")
    assert _call(tmp_path, "run", "agent.py:hello", "Ada", "--id", "ada").returncode == 0
    return tmp_path


def _url(home: Path) -> str:
    return f"sqlite:///{home}/runs.db"


def _call(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NINELIVES_STORE": _url(home)}
    return subprocess.run(
        [str(_NINELIVES), *words], cwd=home, env=environment, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


def _wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_exit_codes_and_reports(home: Path) -> None:
    assert _call(home, "audit", "verify").returncode == 2  # there is no log
    assert _call(home, "audit", "on", "--by", "ada").returncode == 0
    assert "already" in _call(home, "audit", "on").stdout
    _call(home, "pause", "ada")  # refused, and logged
    assert _call(home, "audit", "anchor", "--to", "anchor").returncode == 0
    sound = json.loads(_call(home, "audit", "verify", "--anchor", "anchor", "--json").stdout)
    assert (sound["findings"], sound["entries"], sound["anchored"]) == ([], 3, 3)
    store = open_store(_url(home))
    found = store.read_documents(tiles.TILE)[0]
    store.write_document(found.name, found.body.replace(b'"ada"', b'"eve"'), version=found.version)
    store.close()
    changed = _call(home, "audit", "verify", "--anchor", "anchor")
    assert (changed.returncode, "findings (" in changed.stdout) == (1, True)
    # What is anchored continues what was: a log that was changed is refused.
    assert _call(home, "audit", "verify", "--anchor", "nowhere").returncode == 2
    assert _call(home, "audit", "off").returncode == 2  # it needs a reason


def test_up_follows_and_goes_on_when_it_is_killed(home: Path) -> None:
    assert _call(home, "audit", "on").returncode == 0
    store = open_store(_url(home))
    environment = {**os.environ, "NINELIVES_STORE": _url(home)}
    words = [str(_NINELIVES), "up", "agent.py", "--processes", "1"]
    for number in range(2):
        with subprocess.Popen(words, cwd=home, env=environment, stderr=subprocess.DEVNULL) as up:
            try:
                name = f"run{number}"
                assert _call(home, "start", "agent.py:hello", "Bob", "--id", name).returncode == 0
                _wait(lambda name=name: any(one["run"] == name for one in of_kind(store, "run ended")))  # type: ignore[misc]
            finally:
                up.send_signal(signal.SIGKILL)
    known = status(store, _url(home)).audit_log
    assert known is not None
    assert known.lag_seconds is not None
    assert known.anchored_age_seconds is None
    assert entries.is_on(store)
    store.close()
