"""Run one stage of the demo: a worker process works on all tickets, and is killed at the drawn moments.

The director observes only from outside: the store, the shop's output and the model's bill. It measures
recovery per interrupted run, from the signal until it can read the first newly recorded step.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

import ninelives as nl
from ninelives.core.model.run import RunRow, State
from ninelives.core.model.session import Cause, Evidence
from ninelives.demo.children import DemoProcess
from ninelives.demo.moments import Moment, Strike
from ninelives.demo.tickets import SupportTicket
from ninelives.engine.machine import host
from ninelives.store import Store
from ninelives.views.history import Entry

OPEN_TICKETS = 3
POLL_SECONDS = 0.02
START_SECONDS = 20.0
PATIENCE_STEPS = 3
MAX_OWN_DEATHS = 3
OUTCOMES = ("result", "failure")


class Row(Struct):
    """A ticket's row in the table on the screen."""

    id: str
    title: str
    state: str = "waiting"
    step: str = ""
    steps: int = 0
    crashes: int = 0
    replayed: int = 0
    recovery_seconds: float | None = None


class DemoRecovery(Struct, frozen=True):
    """One recovery of an interrupted run."""

    run: str
    seconds: float
    python_seconds: float
    replayed: int
    decisions: int
    billed: int
    """The number of lines on the model's bill at the kill."""
    is_suspect: bool = False
    """Whether its worker died twice without progress: such runs are executed solo, one after the other."""


class DemoStage(Struct):
    """The observations of one stage."""

    rows: list[Row]
    results: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    recoveries: list[DemoRecovery] = field(default_factory=list)
    kills: list[str] = field(default_factory=list)
    checkpoints: int = 0
    changed_checkpoints: int = 0
    ledger: list[dict[str, Any]] = field(default_factory=list)
    bill: list[dict[str, Any]] = field(default_factory=list)


class DemoFailed(Exception):
    """The demo itself could not run."""


class Watcher:
    """Receives what happens; this one ignores it, the screens show it."""

    def say(self, line: str) -> None:
        """Take a line of text about an event."""

    def show(self, rows: Sequence[Row]) -> None:
        """Take the state of all tickets."""


class _Broken(Struct):
    """A run whose worker was killed and that has not recovered yet."""

    at: float
    history: list[Entry]
    billed: int
    is_suspect: bool


class Director:
    """Runs one stage."""

    def __init__(
        self,
        home: Path,
        tickets: Sequence[SupportTicket],
        strikes: Sequence[Strike],
        watcher: Watcher,
        store: str = "",
    ) -> None:
        self._home, self._tickets, self._watcher = home, list(tickets), watcher
        self._store = store or f"sqlite:///{home}/runs.db"
        self._strikes = list(strikes)
        self.stage = DemoStage([Row(ticket.id, ticket.title) for ticket in tickets])
        self._rows = {row.id: row for row in self.stage.rows}
        self._lengths: dict[str, int] = {}
        self._histories: dict[str, list[Entry]] = {}
        self._seen: dict[str, list[list[Entry]]] = {}
        self._broken: dict[str, _Broken] = {}
        self._is_armed, self._counted, self._billed = False, 0, 0
        self._killed_at: float | None = None
        self._spawned_at = self._ready_at = self._python_seconds = 0.0
        self._deaths = 0
        self._port = 0
        self._opened = asyncio.Event()
        self._shop: DemoProcess | None = None
        self._worker: DemoProcess | None = None

    async def direct(self, *, limit_seconds: float, is_forgetful: bool = False) -> DemoStage:
        """Run the stage until all tickets end or time is up; a ticket that has not ended then is lost."""
        self._loop = asyncio.get_running_loop()
        try:
            options = ["--forgetful"] if is_forgetful else []
            self._shop = await self._start(
                "shop", str(self._home / "ledger"), *options, on_line=self._on_shop_line, env={}
            )
            async with asyncio.timeout(START_SECONDS):
                await self._opened.wait()
            async with nl.Runtime(self._store) as runtime:
                try:
                    async with asyncio.timeout(limit_seconds):
                        await self._play(runtime)
                except TimeoutError:
                    self._watcher.say(f"not all tickets were done within {limit_seconds:.0f} s")
                await self._collect(runtime)
        finally:
            await self._end()
        self.stage.ledger = _lines(self._home / "ledger")
        self.stage.bill = _lines(self._home / "bill")
        return self.stage

    async def _play(self, runtime: nl.Runtime) -> None:
        from ninelives.demo.agent import support  # it declares an agent, so import it only in the demo

        await self._start_worker()
        arriving = list(self._tickets)
        while arriving or self._open():
            while arriving and self._open() < OPEN_TICKETS:
                ticket = arriving.pop(0)
                await runtime.start(support, ticket, id=ticket.id)
                self._rows[ticket.id].state = "pending"
                self._watcher.say(f"{ticket.id} arrived: {ticket.text}")
            await self._poll(runtime)
            self._watcher.show(self.stage.rows)
            if self._killed_at is None and self._worker is not None and not self._worker.is_alive:
                self._ended_by_itself(self._worker)
            if self._killed_at is not None:
                await self._start_again(runtime)
            elif self._strikes:
                await self._aim(self._strikes[0])
            await asyncio.sleep(POLL_SECONDS)
        if self._strikes:
            self._watcher.say(f"all tickets were done; {len(self._strikes)} of the kills were not needed")

    def _open(self) -> int:
        return sum(row.state not in ("waiting", *_ENDED) for row in self.stage.rows)

    def _ended_by_itself(self, worker: DemoProcess) -> None:
        self._deaths += 1
        self._killed_at = self._loop.time()
        if self._deaths > MAX_OWN_DEATHS:
            raise DemoFailed(f"the worker keeps ending by itself: {worker.last_errors()}")
        self._watcher.say(f"the worker ended by itself: {worker.last_errors()}")

    # Processes ----------------------------------------------------------------------------------

    async def _start(
        self, module: str, *args: str, on_line: Callable[[str], None], env: dict[str, str]
    ) -> DemoProcess:
        errors = self._home / f"{module}.errors"
        return await DemoProcess.start(
            f"ninelives.demo.{module}", *args, errors=errors, on_line=on_line, env=env
        )

    async def _start_worker(self) -> None:
        self._spawned_at, self._ready_at = self._loop.time(), 0.0
        env = {
            "NINELIVES_DEMO_SHOP": f"127.0.0.1:{self._port}",
            "NINELIVES_DEMO_BILL": str(self._home / "bill"),
        }
        env["NINELIVES_STORE"] = self._store  # not an argument: the URL may hold a password
        self._worker = await self._start("worker", on_line=self._on_worker_line, env=env)

    def _on_worker_line(self, line: str) -> None:
        if line == "ready":
            self._ready_at = self._loop.time()
            self._python_seconds = self._ready_at - self._spawned_at

    def _on_shop_line(self, line: str) -> None:
        event = json.loads(line)
        if event["event"] == "open":
            self._port = event["port"]
            self._opened.set()
        if self._killed_at is not None:
            return
        # Kill at once: at the next poll it would be too late.
        if event["event"] == "held":
            self._kill(next(one for one in self._strikes if one.moment is Moment.EFFECT))
        elif event["event"] == "answered" and self._is_armed and self._strikes[0].moment is Moment.ANSWER:
            self._kill(self._strikes[0])

    async def _end(self) -> None:
        for child in (self._worker, self._shop):
            if child is not None:
                child.kill()
                await child.gone()

    # Killing ------------------------------------------------------------------------------------

    async def _aim(self, strike: Strike) -> None:
        """Kill if this is the moment. The moments that the shop reports are handled as its lines arrive."""
        if strike.moment is Moment.RECOVERY:
            if self._broken and self._ready_at and self._loop.time() >= self._ready_at + strike.seconds:
                self._kill(strike)
            elif not self._broken:  # it recovered between two polls
                self._strikes[0] = Strike(Moment.STEP, strike.count, strike.seconds)
            return
        if self._broken or not self._lengths:
            return  # first let every interrupted run recover
        if not self._is_armed:
            self._is_armed, self._counted, self._billed = True, self._outcomes(), self._asked()
            if strike.moment is Moment.EFFECT:
                await asyncio.to_thread(_hold_next, self._port)
            return
        new = self._outcomes() - self._counted
        is_step = strike.moment is Moment.STEP and new >= strike.count
        is_thought = strike.moment is Moment.THOUGHT and self._asked() > self._billed
        if is_step or is_thought:
            self._kill(strike)
        elif strike.moment in (Moment.EFFECT, Moment.ANSWER) and new >= PATIENCE_STEPS:
            self._put_off()

    def _put_off(self) -> None:
        """Try another kill first while no request reaches the shop; a held answer still triggers its kill."""
        self._is_armed = False
        for later, strike in enumerate(self._strikes):
            if strike.moment not in (Moment.EFFECT, Moment.ANSWER):
                self._strikes[0], self._strikes[later] = strike, self._strikes[0]
                return
        first = self._strikes[0]
        if first.moment is Moment.ANSWER:
            self._strikes[0] = Strike(Moment.STEP, first.count, first.seconds)

    def _kill(self, strike: Strike) -> None:
        if self._worker is None:
            return
        self._worker.kill()
        self._killed_at = self._loop.time()
        self._strikes.remove(strike)
        self._is_armed = False
        self.stage.kills.append(strike.moment.name.lower())
        number = len(self.stage.kills)
        self._watcher.say(f"kill -9 {self._worker.pid} (number {number}) while {strike.moment.value}")

    async def _start_again(self, runtime: nl.Runtime) -> None:
        killed_at, dead = self._killed_at or 0.0, self._worker
        if dead is not None:
            await dead.gone()
        await self._start_worker()
        self._killed_at = None  # not earlier: until now the shop's events were about the dead worker
        # Python takes far longer to start than this read, so no worker has written in between.
        rows, billed = await self._poll(runtime), len(_lines(self._home / "bill"))
        for row in rows:
            if row.state is State.RUNNING or (row.id in self._broken and not row.state.is_final):
                history = self._histories[row.id]
                is_suspect = row.id in self._broken  # two deaths without progress: it will run solo
                self._broken[row.id] = _Broken(killed_at, history, billed, is_suspect)
                self._seen.setdefault(row.id, []).append(history)
                self._rows[row.id].crashes += 1
                self._rows[row.id].state = "crashed"
        if dead is not None:
            await runtime.call(_report_death, dead.pid)
        self._watcher.show(self.stage.rows)

    def _outcomes(self) -> int:
        return sum(_outcomes(history) for history in self._histories.values())

    def _asked(self) -> int:
        bill = self._home / "bill"
        return bill.read_bytes().count(b'"asked"') if bill.exists() else 0

    # Observing ----------------------------------------------------------------------------------

    async def _poll(self, runtime: nl.Runtime) -> list[RunRow]:
        rows = await runtime.list(limit=1000)
        for row in rows:
            if self._lengths.get(row.id) != row.length:
                history = await (await runtime.get(row.id)).history()
                self._lengths[row.id], self._histories[row.id] = row.length, history
                self._note(row.id, history)
            if row.id not in self._broken:
                self._rows[row.id].state = row.state.value
        return rows

    def _note(self, run: str, history: list[Entry]) -> None:
        row = self._rows[run]
        row.steps = _outcomes(history)
        last = next((entry for entry in reversed(history) if entry.kind in ("intent", *OUTCOMES)), None)
        row.step = last.step + ("…" if last.kind == "intent" else "") if last else ""
        broken = self._broken.get(run)
        if broken is None:
            return
        old = len(broken.history)
        new = next((entry for entry in history[old:] if entry.kind in (*OUTCOMES, "end")), None)
        if new is None:
            return
        del self._broken[run]
        seconds = self._loop.time() - broken.at
        replayed = _outcomes(broken.history)
        decisions = sum(entry.kind in OUTCOMES and entry.step == "choose" for entry in broken.history)
        python_seconds = self._python_seconds
        self.stage.recoveries.append(
            DemoRecovery(run, seconds, python_seconds, replayed, decisions, broken.billed, broken.is_suspect)
        )
        row.replayed += replayed
        row.recovery_seconds = seconds
        what = f"first new step {new.step}" if new.step else "the run ended"
        self._watcher.say(
            f"{run} recovered in {seconds * 1000:.0f} ms ({python_seconds * 1000:.0f} of them to start "
            f"Python): {replayed} steps replayed, {what}"
        )

    async def _collect(self, runtime: nl.Runtime) -> None:
        self._watcher.show(self.stage.rows)
        for ticket in self._tickets:
            try:
                run = await runtime.get(ticket.id)
                if self._rows[ticket.id].state in _ENDED:
                    self.stage.results[ticket.id] = await run.result()
            except nl.NineLivesError as error:
                self.stage.failures[ticket.id] = str(error)
                self._watcher.say(f"{ticket.id}: {error}")
                continue
            history = await run.history()
            for seen in self._seen.get(ticket.id, []):
                self.stage.checkpoints += 1
                self.stage.changed_checkpoints += history[: len(seen)] != seen


_ENDED = ("completed", "failed", "cancelled", "escalated")


def _report_death(store: Store, pid: int) -> None:
    """Report to the store, as a supervisor does, that a worker process is gone: a server cannot see it."""
    here = host()
    gone = [one.id for one in store.list_sessions() if (one.host, one.pid) == (here, pid)]
    seen = Evidence(is_gone=True, signal=signal.SIGKILL)
    store.end_sessions(gone, Cause.DIED, evidence=dict.fromkeys(gone, seen))


def _outcomes(history: Sequence[Entry]) -> int:
    return sum(entry.kind in OUTCOMES for entry in history)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _hold_next(port: int) -> None:
    connection = http.client.HTTPConnection(f"127.0.0.1:{port}", timeout=10)
    connection.request("POST", "/hold", "{}")
    connection.getresponse().read()
    connection.close()
