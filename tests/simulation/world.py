"""The world outside: what effects are made on.

A process that was killed cannot touch it any more; a request that was on its way lands all the same.
"""

from __future__ import annotations

import asyncio
import sqlite3
from random import Random
from typing import TYPE_CHECKING

import ninelives as nl
from ninelives.core.ids import step_id
from ninelives.engine.context import FRAME
from tests.simulation.ledger import Event, Fact, Ledger
from tests.simulation.machine import Machine, Process
from tests.simulation.nemesis import Nemesis, befall
from tests.simulation.plan import Strike

if TYPE_CHECKING:
    from collections.abc import Callable


class World:
    """What is outside."""

    def __init__(
        self,
        machine: Machine,
        seed: int,
        nemesis: Nemesis,
        ledger: Ledger,
        tell: Callable[[Process, str], None],
    ) -> None:
        self.machine, self._nemesis, self._ledger, self._tell = machine, nemesis, ledger, tell
        self.rng = Random(f"world {seed}")
        self.effects: dict[str, int] = {}
        self.is_mended = False
        self._nature = Process(machine, "nature")
        self._books = f"file:books-{seed}-{id(self)}?mode=memory&cache=shared"
        self._kept = self._open_books()
        self._kept.execute("CREATE TABLE entries (run TEXT, value INTEGER)")

    def draw(self) -> int:
        """Return what nobody could have foreseen."""
        return self.rng.randrange(1, 1_000_000)

    def note(self, fact: Fact, value: int, start: int = 0) -> None:
        """Write down what the current body does; the nemesis may strike before or after it."""
        process = self.machine.current.process
        fault = self._nemesis.next(fact.value)
        if fault is not None:
            self._tell(process, f"{fact}: {fault.strike}")
            befall(process, fault)
        self._happens(_event(self.machine.now, process.name, fact, value, start))
        if fault is not None and fault.strike is Strike.KILL_AFTER:
            process.die()

    def send(self, value: int, start: int, travel_seconds: float) -> asyncio.Future[None]:
        """Send a request that lands whatever becomes of who sent it; returns its answer."""
        process, loop = self.machine.current.process, asyncio.get_running_loop()
        event = _event(self.machine.now, process.name, Fact.EFFECT, value, start)
        landed: asyncio.Future[None] = loop.create_future()

        def answer() -> None:
            if not landed.done():
                landed.set_result(None)

        def land() -> None:
            self.machine.block(travel_seconds)
            self._happens(event)
            if not process.is_dead:
                loop.call_soon_threadsafe(answer)

        self.machine.spawn(self._nature, land, "request")
        return landed

    def told(self, name: str, number: int, value: int) -> int:
        """Note that the run's code was given the outcome of the `number`th call of a step."""
        info, process = nl.info(), self.machine.current.process.name
        step = step_id("", name, number)
        self._ledger.write(
            Event(
                fact=Fact.TOLD,
                at=self.machine.now,
                process=process,
                run=info.run,
                turn=info.turn,
                step=step,
                value=value,
            )
        )
        return value

    def connect(self) -> sqlite3.Connection:
        """Open the database of the world for the current process; with its death, what is open is undone."""
        conn = self._open_books()
        self.machine.current.process.ended.append(conn.close)
        return conn

    def _open_books(self) -> sqlite3.Connection:
        return sqlite3.connect(self._books, uri=True, isolation_level=None)

    def entries(self, run: str) -> list[int]:
        """Return what is in the world's database of a run."""
        found = self._kept.execute("SELECT value FROM entries WHERE run = ?", (run,)).fetchall()
        return [value for (value,) in found]

    def close(self) -> None:
        """Let go of the database."""
        self._kept.close()

    def _happens(self, event: Event) -> None:
        if event.fact is Fact.EFFECT:
            self.effects.setdefault(event.key, event.value)
        self._ledger.write(event)


def _event(now: float, process: str, fact: Fact, value: int, start: int) -> Event:
    frame = FRAME.get()
    if frame is None:
        raise AssertionError("the world is touched outside of a body")
    position, key = frame.position, frame.position.key()
    return Event(
        fact=fact,
        at=now,
        process=process,
        run=position.execution.run.id,
        turn=position.execution.turn,
        step=position.id,
        name=position.name,
        key=key,
        identity=getattr(position, "business", key),
        value=value,
        start=start,
    )
