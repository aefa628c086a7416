"""A policy file with trips, breakers and limits: in runtimes and commands, and refused with a mistake."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ninelives as nl
from ninelives.core.errors import UsageError
from ninelives.core.model.run import State
from ninelives.governance.halts import read_halts
from tests.replay.lifetimes import QuickStore, run_async
from tests.workers.test_workers import until

POLICY = """
[policy]
name = "shop"
default = "allow"

[[rule]]
id = "no-large-refunds"
actions = ["refund"]
when = "cents > 100"
do = "deny"
why = "too much"
"""
PAGE = Path(__file__).parents[2] / "docs/halts.md"


def declare() -> None:
    """Declare what the policy names."""

    @nl.action(name="refund")
    async def refund(cents: int) -> int:
        return cents

    @nl.decision(name="search")
    async def search(query: str) -> str:
        raise nl.Permanent("never")

    @nl.decision(name="fetch")
    async def fetch(query: str) -> str:
        return query

    @nl.agent(name="researcher")
    async def researcher() -> None: ...


def tables() -> str:
    """Return the tables that the manual shows."""
    blocks = re.findall(r"^```\n(\[\[.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    return "".join(blocks)


def test_the_tables_of_the_manual_govern(tmp_path: Path) -> None:
    declare()
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY + tables())

    async def main() -> None:
        async with nl.Runtime("memory:", policy=str(policy)) as rt:
            governor = rt.governing.governor
            assert governor is not None
            assert governor.has_policy

    run_async(main)


def test_denials_trip_a_halt_and_its_agent_waits(tmp_path: Path) -> None:
    declare()
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY + '[[trip]]\nid = "denied"\nwhen = "denials > 3 in 1m"\nhalt = "agent"\n')
    store = QuickStore()

    @nl.agent(name="greedy")
    async def greedy() -> None:
        from ninelives.engine.spec.registry import STEPS

        while True:
            try:
                await STEPS["refund"](1_000)
            except nl.Denied:
                continue

    async def main() -> str:
        async with nl.Runtime(store, policy=str(policy)) as rt:
            await rt.start(greedy, id="run")
            await rt.work(until_idle=True)
            return (await rt.list())[0].waits

    waits = run_async(main)
    (halt,) = read_halts(store, store.now_ms())
    assert waits.startswith(f"until the halt {halt.id} (agent 'greedy': the trip 'denied'")


@pytest.mark.parametrize(
    "table",
    [
        '[[trip]]\nid = "denied"\nwhen = "denials > many"\nhalt = "agent"\n',
        '[[breaker]]\nactions = ["serach"]\n',
        '[[limit]]\nid = "rate"\nactions = ["search"]\nper_minutes = 3\n',
    ],
)
def test_a_table_that_would_do_nothing_keeps_the_process_from_starting(tmp_path: Path, table: str) -> None:
    declare()
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY + table)

    async def main() -> None:
        async with nl.Runtime("memory:", policy=str(policy)):
            pytest.fail("it has started")

    with pytest.raises(UsageError):
        run_async(main)


AGENT = """
import ninelives as nl

@nl.action
async def refund(cents: int) -> int:
    return cents

@nl.agent
async def shop(cents: int) -> str:
    try:
        return str(await refund(cents))
    except nl.Denied as error:
        return f"denied: {error}"
"""


def test_the_policy_reaches_commands_and_the_workers_of_a_supervisor(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "policy.toml").write_text(POLICY)
    url = f"sqlite:///{tmp_path}/runs.db"
    ninelives = [sys.executable, "-m", "ninelives"]
    command = [*ninelives, "run", "agent.py:shop", "500", "--store", url, "--policy", "policy.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "denied" in done.stdout
    missing = [*command[:-1], "none.toml"]
    assert subprocess.run(missing, cwd=tmp_path, capture_output=True, check=False).returncode == 2
    up = [*ninelives, "worker", "agent.py", "--store", url, "--policy", "policy.toml"]
    with subprocess.Popen(up, cwd=tmp_path, stderr=subprocess.DEVNULL) as worker:
        start = [*ninelives, "start", "agent.py:shop", "500", "--id", "later", "--store", url]
        subprocess.run(start, cwd=tmp_path, capture_output=True, check=True)
        from ninelives.stores.sqlite import SqliteStore

        store = SqliteStore(tmp_path / "runs.db")
        until(lambda: (row := store.read_run("later")) is not None and row.state is State.COMPLETED)
        records = b"".join(one.body for one in store.load_journal("later").records)
        store.close()
        worker.terminate()
    assert b"denied" in records
    (tmp_path / "policy.toml").write_text(POLICY + '[[breaker]]\nactions = ["nothing"]\n')
    refused = subprocess.run(up, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert "nothing" in refused.stderr
