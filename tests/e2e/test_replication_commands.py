"""`ninelives store replicate`, `backup` and `restore` with buckets and servers, as people call them."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from ninelives.stores.open import open_store
from tests.contract.makers import AnyStore, new_run
from tests.servers import valkey
from tests.servers.postgres import change, shared_url


def called(*words: str, code: int = 0) -> str:
    """Call the command and return what it printed."""
    ran = subprocess.run(
        [sys.executable, "-m", "ninelives", "store", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    return ran.stdout + ran.stderr


def filled(url: str, *runs: str) -> None:
    """Create runs in a store."""
    store: AnyStore = open_store(url)
    store.create_runs([new_run(run) for run in runs])
    store.close()


def test_a_drill_notices_a_difference(tmp_path: Path) -> None:
    live, bucket = f"sqlite:///{tmp_path}/live.db", f"file://{tmp_path}/bucket"
    filled(live, "r1", "r2")
    said = json.loads(called("replicate", bucket, "--store", live, "--once", "--json"))
    assert (said["destination"], said["errors"]) == (bucket, {})
    assert "no difference" in called("restore", bucket, "--check", "--store", live)
    filled(other := f"sqlite:///{tmp_path}/other.db", "r1")
    assert "r2: it is in the copy, and not in the store" in called(
        "restore", bucket, "--check", "--store", other, code=1
    )
    printed = called("restore", bucket, "--to", f"sqlite:///{tmp_path}/new.db")
    assert "paused r1" in printed
    assert "Everything that was committed before" in printed
    assert "UsageError" in called("restore", bucket, "--to", live, code=2)
    filled(live, *(f"more{number}" for number in range(50)))
    called("replicate", bucket, "--store", live, "--once")
    *_, summary, missing = called("restore", bucket, "--to", f"sqlite:///{tmp_path}/all.db").splitlines()
    assert "resume --agent AGENT" in summary
    assert missing.startswith("Everything that was committed")
    early = ("--to", f"sqlite:///{tmp_path}/early.db", "--at", "2020-01-01T00:00:00Z")
    assert "no complete copy" in called("restore", bucket, *early, code=2)
    assert not (tmp_path / "early.db").exists()
    assert "no time" in called("restore", bucket, "--to", live, "--at", "noon", code=2)


@pytest.mark.parametrize("kind", ["postgresql", "redis"])
def test_a_servers_store_is_backed_up_to_a_file(tmp_path: Path, kind: str) -> None:
    name = f"test_{secrets.token_hex(6)}"
    url = f"{shared_url()}?schema={name}" if kind == "postgresql" else f"{valkey.shared_url()}?prefix={name}"
    try:
        filled(url, "r1", "r2")
        called("backup", f"{tmp_path}/all.tar", "--store", url)
        store: AnyStore = open_store(url)
        assert store.read_documents("replication/") == []  # a backup has no lag that could alert anyone
        store.close()
        target = f"sqlite:///{tmp_path}/restored.db"
        assert "2 runs restored, 2 unfinished ones paused" in called(
            "restore", f"{tmp_path}/all.tar", "--to", target
        )
        assert "exists" in called("backup", f"{tmp_path}/all.tar", "--store", url, code=2)
    finally:
        change(f"DROP SCHEMA IF EXISTS {name} CASCADE") if kind == "postgresql" else valkey.wipe(name)
