"""`ninelives store`, as an operator types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ninelives.core.journal import chain
from ninelives.core.model.commit import Commit, End
from ninelives.core.model.run import Kind, NewRun, State
from ninelives.core.model.session import NewSession
from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.files import anchor
from tests.formats import keep


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with one run that has ended and one that has not."""
    store = SqliteStore(tmp_path / "runs.db")
    store.create_runs([NewRun(id=name, agent="a", fingerprint=b"", body=b"{}") for name in ("done", "open")])
    store.register_session(NewSession(id="s", host="here", pid=os.getpid()))
    store.claim_runs("s", 1, {"a": 1})
    run = store.read_run("done")
    assert run is not None
    records = chain.seal(run.length, run.head, [(Kind.END, "", 1, b"42", ())], run.epoch)
    parts = {"run": run.id, "epoch": run.epoch, "length": run.length, "head": run.head}
    store.commit([Commit(**parts, records=records, change=End(State.COMPLETED))])  # type: ignore[arg-type]
    store.close()
    return f"sqlite:///{tmp_path}/runs.db"


def ninelives(*words: str, store: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command with no terminal."""
    environment = {**os.environ, "NINELIVES_STORE": store} if store else dict(os.environ)
    command = [sys.executable, "-m", "ninelives", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


def test_stats_counts_what_is_there(url: str) -> None:
    shown = ninelives("store", "stats", store=url)
    assert shown.returncode == 0
    assert "runs, completed" in shown.stdout
    counted = json.loads(ninelives("store", "stats", "--json", "--store", url).stdout)
    assert (counted["runs"]["completed"], counted["runs"]["pending"], counted["records"]) == (1, 1, 3)


def test_verify_says_that_all_is_well(url: str) -> None:
    told = ninelives("store", "verify", store=url)
    assert (told.returncode, told.stdout) == (0, "no faults\n")
    assert ninelives("store", "verify", "--json", store=url).stdout == "[]\n"


def test_prune_keeps_what_is_young_and_removes_what_is_old(url: str) -> None:
    assert "removed 0 journals" in ninelives("store", "prune", store=url).stdout
    pruned = json.loads(ninelives("store", "prune", "--ended", "0s", "--json", store=url).stdout)
    assert (pruned["journals"], pruned["records"]) == (1, 2)


def test_migrate_tells_the_version(url: str) -> None:
    assert ninelives("store", "migrate", store=url).stdout == "schema version 3, nothing to do\n"


def test_a_lost_tail_is_told_with_the_command_that_helps_and_that_command_helps(url: str) -> None:
    database = Path(url.removeprefix("sqlite:///"))
    beside = Path(f"{database}-anchor")
    store_id, commits, _ = anchor.read(beside)
    anchor.create(beside, store_id, commits + 1)
    told = ninelives("store", "stats", store=url)
    assert told.returncode == 4
    assert f"ninelives store accept-loss {database}" in told.stderr
    accepted = ninelives("store", "accept-loss", str(database))
    assert accepted.stdout == "paused open\n1 unfinished run paused; the store can be opened again\n"
    assert ninelives("store", "verify", store=url).returncode == 0


@pytest.mark.parametrize("words", [("stats",), ("verify",), ("prune",), ("migrate",)])
def test_looking_at_a_store_that_is_not_there_does_not_make_one(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    told = ninelives("store", *words, "--store", f"sqlite:///{tmp_path}/none/runs.db")
    assert told.returncode == 2
    assert "there is no store" in told.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("prune", "--ended", "soon"), "is not an age"),
        (("stats", "--store", "mysql://somewhere"), "names no store"),
        (("accept-loss", "nowhere.db"), "there is no file"),
        (("fly",), "No such command"),
    ],
)
def test_a_wrong_call_says_what_is_wrong_and_ends_with_2(url: str, words: tuple[str, ...], said: str) -> None:
    told = ninelives("store", *words, store=url)
    assert told.returncode == 2
    assert said in told.stderr
    assert "Traceback" not in told.stderr


PAYER = """
import os, signal, sys
import ninelives as nl

@nl.action(resumable=False)
async def pay(cents: int) -> str:
    with open(sys.argv[1], "a") as ledger:
        ledger.write(f"paid {cents}\\n")
    if len(sys.argv) > 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return "receipt"

@nl.agent
async def payer(cents: int) -> str:
    return await pay(cents)

if __name__ == "__main__":
    print(nl.run(payer, 500, id="p1", store=os.environ["NINELIVES_STORE"]))
"""


def test_a_restored_store_asks_a_person_what_became_of_a_payment(tmp_path: Path) -> None:
    script, ledger, url = tmp_path / "payer.py", tmp_path / "ledger", f"sqlite:///{tmp_path}/runs.db"
    script.write_text(PAYER)
    environment = {**os.environ, "NINELIVES_STORE": url}
    command = [sys.executable, str(script), str(ledger)]
    killed = subprocess.run([*command, "die"], env=environment, check=False, capture_output=True, timeout=60)
    assert killed.returncode == -9, killed.stderr
    copy = str(tmp_path / "copy.db")
    made = ninelives("store", "backup", copy, store=url)
    assert made.returncode == 0, made.stderr
    assert "1 run," in made.stdout
    refused = ninelives("store", "restore", copy, store=url)
    assert (refused.returncode, "--replace" in refused.stderr) == (2, True)
    done = json.loads(ninelives("store", "restore", copy, "--replace", "--json", store=url).stdout)
    assert done["paused"] == ["p1"]
    assert [run for run, _ in done["doubts"]] == ["p1"]
    shown = ninelives("inbox", store=url)
    assert "restored from a backup" in shown.stdout
    words = ("resolve", "p1", "--happened", "--result", '"receipt"', "--by", "ada")
    resolved = ninelives(*words, store=url)
    assert resolved.returncode == 0, resolved.stderr
    assert ninelives("resume", "p1", store=url).returncode == 0
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, timeout=60, text=True)
    assert ended.stdout.strip() == "receipt", ended.stderr
    assert ledger.read_text() == "paid 500\n"
    assert ninelives("store", "verify", store=url).returncode == 0


def test_migrate_brings_a_store_of_an_old_schema_up_to_date(tmp_path: Path) -> None:
    url = keep.put_back("sqlite", Path(keep.__file__).parent / "schema-1", tmp_path)
    assert ninelives("store", "migrate", store=url).stdout == "schema version 3, was 1\n"
    assert ninelives("store", "verify", store=url).stdout == "no faults\n"
