"""A real Prometheus watches real workers being killed -9; every figure is compared with a ledger outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ninelives.governance.audit_log.entries import switch
from ninelives.governance.audit_log.follower import catch_up
from ninelives.governance.budgets.declarations import check
from ninelives.governance.budgets.publication import publish
from ninelives.ops.metrics import rule_files
from ninelives.ops.metrics.rules import ALERTS
from ninelives.ops.notify.state import write_state
from tests.metrics import programs
from tests.metrics.scraping import wait_for, waiting_notices
from tests.metrics.situation import start
from tests.metrics.stack import Stack
from tests.metrics.test_grafana import expressions
from tests.servers.postgres import free_port
from tests.supervisor.fleets import Home, Up

AGENTS = """
import asyncio, os, time
from pathlib import Path
import ninelives as nl

def note(*words):
    fd = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, (" ".join(map(str, (nl.info().run, *words, os.getpid(), time.time()))) + "\\n").encode())
    os.close(fd)

@nl.decision
async def think() -> str:
    note("think")
    return "go"

@nl.action
async def mark() -> None:
    note("mark")

@nl.action
async def hold() -> None:
    note("hold")
    while not Path("go").exists():
        await asyncio.sleep(0.01)

@nl.agent
async def work() -> None:
    await think()
    await mark()
    await hold()
    await mark()

@nl.action
async def post() -> None:
    raise nl.Permanent("no such address")

@nl.agent
async def mail() -> None:
    await post()
"""
RUNS = 3


class Watched:
    """A fleet of one worker, its metrics, and the stack that watches them."""

    def __init__(self, home: Home, up: Up, stack: Stack) -> None:
        self.home, self.up, self.stack = home, up, stack

    def total(self, expr: str) -> float:
        """Return the sum of all series of an expression."""
        return self.stack.number(f"sum({expr})")

    def reaches(self, expr: str, number: float) -> None:
        """Wait until Prometheus knows this number."""
        wait_for(lambda: self.total(expr) == number, f"{expr} is {self.total(expr)}, not {number}")

    def noted(self, what: str) -> list[list[str]]:
        """Return the ledger's lines about a step."""
        return [line for line in self.home.ledger() if line[1] == what]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    programs.needed(programs.prometheus, programs.alertmanager)
    home, port = Home(tmp_path, AGENTS), free_port()
    options = ("--processes", "1", "--lease", "2", "--backoff", "0.1", "--metrics-port", str(port))
    with (
        Up(home, *options, command="up") as up,
        Stack(tmp_path / "stack", port, rule_files.written()) as stack,
    ):
        up.ready()
        found = Watched(home, up, stack)
        found.reaches("ninelives_workers", 1)
        yield found


def test_a_worker_is_killed_and_every_figure_is_right(watched: Watched) -> None:
    home, up, reaches = watched.home, watched.up, watched.reaches
    reaches('ninelives_runs_started_total{agent="work"}', 0)  # it exists before the first run
    for number in range(RUNS):
        start(home, "work", f"work-{number}")
    wait_for(lambda: len(watched.noted("hold")) == RUNS, "the runs do not get on")
    # What the worker did has ridden on a renewal: from here on the kill loses no count.
    reaches("ninelives_actions_total", RUNS)
    audit = [sys.executable, "-m", "ninelives", "store", "audit", "--store", home.url]
    subprocess.run(audit, check=True, capture_output=True)
    store = home.open()
    store.write_document("replication/s3", b'{"written_ms": %d}' % store.now_ms(), version=0)
    write_state(store, waiting_notices(store, 1))
    publish(store, check([{"name": "day", "scope": "store", "tokens": 100}]))
    store.write_document("budget/day/all/store", b'{"spent":{"tokens":9}}', version=0)
    switch(store, on=True)
    catch_up(store)
    store.close()
    (pid,) = up.ready()
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(watched.noted("hold")) == 2 * RUNS, "the runs are not taken over")
    again = max(float(line[3]) for line in watched.noted("hold"))
    home.go()
    home.completed(*(f"work-{number}" for number in range(RUNS)))
    ended = time.time()

    ledger = {what: len(watched.noted(what)) for what in ("think", "mark", "hold")}
    assert ledger == {"think": RUNS, "mark": 2 * RUNS, "hold": 2 * RUNS}
    # R43: all that was left has recovered, and ended.
    reaches('ninelives_runs_ended_total{agent="work",outcome="completed"}', RUNS)
    reaches('ninelives_recoveries_total{agent="work",outcome="recovered"}', RUNS)
    assert watched.total('ninelives_runs_left_total{agent="work",cause="died"}') == RUNS
    assert watched.total("ninelives_recoveries_total") == RUNS
    assert watched.total("ninelives_runs_unrecovered") == 0
    assert watched.total('ninelives_worker_deaths_total{cause="signal"}') == 1
    # R40: as long as the ledger says, no longer.
    assert watched.total("ninelives_recovery_duration_seconds_count") == RUNS
    assert 0 < watched.total("ninelives_recovery_duration_seconds_sum") <= RUNS * (ended - killed)
    assert watched.total("ninelives_detection_duration_seconds_count") == RUNS
    assert watched.total("ninelives_detection_duration_seconds_sum") <= RUNS * (again - killed + 2)
    # R41: what the ledger has twice was under way; what was recorded was not repeated.
    assert watched.total('ninelives_steps_redone_total{kind="resumable"}') == ledger["hold"] - RUNS
    assert watched.total("ninelives_steps_redone_total") == RUNS
    assert watched.total("ninelives_steps_replayed_total") == 2 * RUNS
    assert watched.total("ninelives_saved_decisions_total") == RUNS
    assert watched.total("ninelives_duplicates_total") == 0
    reaches("ninelives_actions_total", 3 * RUNS)
    assert watched.total("ninelives_decisions_total") == RUNS
    # R42: each recovery was verified, and nothing was wrong.
    assert watched.total('ninelives_verifications_total{outcome="sound"}') == RUNS
    assert watched.total("ninelives_verification_faults_total") == 0
    # R44: none of it is an alert, since nothing went wrong. One run that fails is.
    assert watched.stack.firing() == set()
    start(home, "mail", "mail-9")
    wait_for(lambda: "NineLivesRunsFailing" in watched.stack.webhook.names(), "no alert reached the webhook")
    assert watched.stack.webhook.names() == {"NineLivesRunsFailing"}
    (alert,) = [one for one in watched.stack.webhook.alerts if one["status"] == "firing"][:1]
    assert alert["labels"]["agent"] == "mail"
    assert alert["annotations"]["runbook_url"] in {f"docs/runbook.md#{rule.anchor}" for rule in ALERTS}
    # A4: no panel is empty.
    empty = [expr for expr in expressions() if not watched.stack.query(expr)]
    assert empty == []
