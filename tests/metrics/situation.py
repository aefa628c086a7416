"""A store in which all has gone wrong that the runbook speaks of, made by real workers and real kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from ninelives.core.governance.breaker import Breaker, BreakerState, failed
from ninelives.core.model.run import NewRun, RunRow, State
from ninelives.core.model.session import NewSession
from ninelives.governance.audit_log.entries import switch
from ninelives.governance.audit_log.follower import catch_up
from ninelives.governance.budgets.declarations import check
from ninelives.governance.budgets.publication import publish
from ninelives.governance.enforced import Enforced, note_enforced
from ninelives.governance.halt_changes import Selectors, halt
from ninelives.stores.sqlite import SqliteStore
from tests.supervisor.fleets import Home, Up, wait_until

AGENTS = """
import asyncio, os, signal
from pathlib import Path
import ninelives as nl

@nl.action(resumable=False)
async def refund(order: str) -> str:
    os.kill(os.getpid(), signal.SIGKILL)

@nl.agent
async def support() -> str:
    return await refund("order-7")

@nl.decision
async def think(question: str) -> str:
    if not Path("provider").exists():
        raise ConnectionError("the model's server is away")
    return "yes"

@nl.agent
async def research() -> str:
    return await think("why?")

@nl.action
async def post(address: str) -> None:
    raise nl.Permanent(f"no such address: {address}")

@nl.agent
async def mail() -> None:
    await post("ada@nowhere")

@nl.action
async def lookup(number: int) -> int:
    return number

@nl.action
async def wait_for_carrier() -> None:
    while not Path("go").exists():
        await asyncio.sleep(0.01)

@nl.agent
async def ticket() -> str:
    await lookup(42)
    await wait_for_carrier()
    return "done"

@nl.agent
async def trip() -> str:
    return await nl.ask("Which hotel?")
"""
NOTIFY = """
[[channel]]
name = "on-call"
url = "http://127.0.0.1:9/"
secret_env = "NOTIFY_SECRET"
"""
STARTED = (("ticket", "ticket-42"), ("research", "report-3"), ("mail", "mail-9"), ("trip", "trip-1"))


class Situation:
    """A directory with agents, and a store whose workers were killed."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path, AGENTS)
        start(self.home, "support", "refund-7")
        with Up(self.home, "--lease", "2", "--backoff", "0.1") as up:
            up.ready(2)  # the first worker was killed by the refund
            wait_until(lambda: self._row("refund-7").state is State.ESCALATED, "the refund is not in doubt")
            for agent, run in STARTED:
                start(self.home, agent, run)
            wait_until(lambda: self._row("report-3").retrying, "nothing is retried")
            wait_until(lambda: self._row("mail-9").state is State.FAILED, "nothing fails")
            wait_until(self._is_asking, "no question")
            wait_until(lambda: self._row("ticket-42").length > 2, "the ticket does not get on")
            workers = up.ready(2)
            up.kill()
            for pid in workers:
                _kill(pid)
        store = self.home.open()
        wait_until(lambda: not any(one.left_ms for one in store.list_sessions()), "a lease does not expire")
        body = b"{}"
        store.create_runs([NewRun(id="order-5", agent="shipping", fingerprint=b"f", body=body)])
        store.close()
        self.desk = self.home.open()
        """Workers of other agents are alive as long as it is open."""
        govern(self.desk)
        self._notify()

    def _notify(self) -> None:
        """Let a notifier fail: nothing listens at its receiver's port."""
        (self.home.path / "notify.toml").write_text(NOTIFY)
        done = subprocess.run(
            [sys.executable, "-m", "ninelives", "notify", "--config", "notify.toml", "--once"],
            cwd=self.home.path,
            env={**os.environ, "NINELIVES_STORE": self.home.url, "NOTIFY_SECRET": "between us"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stderr

    def _row(self, run: str) -> RunRow:
        return self.home.row(run)

    def _is_asking(self) -> bool:
        store = self.home.open()
        try:
            return any(item.run == "trip-1" for item in store.list_inbox())
        finally:
            store.close()

    def open(self) -> SqliteStore:
        """Open the store."""
        return self.home.open()


def govern(store: SqliteStore) -> None:
    """Let a trip, a breaker, a budget and a worker without the policy be found in a store."""
    now_ms = store.now_ms()
    halt(store, Selectors(action="settle"), reason="denials > 20 in 1m", by="trip:denied")
    state = failed(BreakerState(), Breaker(failures=1), [now_ms], now_ms, "OSError: search is away")
    store.write_document("breakers/search", msgspec.json.encode(state), version=0)
    publish(store, check([{"name": "day", "scope": "store", "tokens": 100}]))
    store.write_document("budget/day/all/store", b'{"spent":{"tokens":97}}', version=0)
    note_enforced(store, "desk-1", Enforced("5d41402abc4b2a76", "desk"))
    for name in ("desk-1", "desk-2"):
        store.register_session(NewSession(id=name, host="h", pid=1, agents=("desk",), lease_ms=3_600_000))
    switch(store, on=True)
    catch_up(store)


def start(home: Home, agent: str, run: str) -> None:
    """Start a run as a person does."""
    command = [sys.executable, "-m", "ninelives", "start", f"agents.py:{agent}", "--id", run]
    subprocess.run(
        command,
        cwd=home.path,
        env={**os.environ, "NINELIVES_STORE": home.url},
        check=True,
        capture_output=True,
    )


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
