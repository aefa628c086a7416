"""The workers: processes with the real runtime in them, and who starts others in the place of the dead."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

from ninelives.core.errors import InvariantViolation, NineLivesError
from ninelives.core.model.session import Cause, Evidence
from ninelives.runtime import ProcessOptions, Runtime
from tests.simulation.loop import VirtualLoop
from tests.simulation.machine import Machine, Process
from tests.simulation.nemesis import Nemesis
from tests.simulation.store import Archive, Line

LEASE_SECONDS = 3.0
WORKERS = 4


def _where(error: BaseException) -> str:
    """Return the place in the code that an error comes from."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


class Fleet:
    """Workers, and their keeper: he ends the sessions of the dead, or leaves that to their leases."""

    def __init__(
        self,
        machine: Machine,
        seed: int,
        archive: Archive,
        nemesis: Nemesis,
        tell: Callable[[Process, str], None],
    ) -> None:
        self._machine, self._archive, self._nemesis, self._tell = machine, archive, nemesis, tell
        self._rng = Random(f"fleet {seed}")
        self._keeper = Process(machine, "keeper")
        self._loops: list[VirtualLoop] = []
        self.deaths = 0

    def start(self) -> None:
        """Start all workers."""
        for number in range(WORKERS):
            self._start(f"w{number}", 0)

    def _start(self, name: str, life: int) -> None:
        machine, rng = self._machine, self._rng
        process = Process(
            machine,
            f"{name}.{life}",
            wall_ms=rng.choice((0, 0, rng.randrange(-3_600_000, 3_600_000))),
            rate=rng.choice((1.0, rng.uniform(0.97, 1.03))),
        )
        line = Line(self._archive, process, self._nemesis, self._tell)
        loop = VirtualLoop(machine, process)
        self._loops.append(loop)
        self._archive.processes[process.name] = process
        options = ProcessOptions(
            session=process.name, fatal=process.die, is_dedicated=rng.random() < 0.5, is_logged=False
        )
        runtime = Runtime(line, lease_seconds=LEASE_SECONDS, process=options)
        concurrency = rng.choice((2, 4, 10))

        async def main() -> None:
            async with runtime:
                await runtime.work(concurrency)

        def life_of_it() -> None:
            task = loop.create_task(main())
            process.stop = partial(loop.call_soon_threadsafe, task.cancel)
            try:
                loop.run(task)
            except NineLivesError as error:
                self._tell(process, f"ends: {type(error).__name__}")
            except (Exception, InvariantViolation) as error:
                machine.complaints.append(f"crash: {process.name} ends with {error!r} at {_where(error)}")
            process.die()

        process.ended.append(lambda: self._mourn(process, name, life))
        machine.spawn(process, life_of_it, name)

    def _mourn(self, process: Process, name: str, life: int) -> None:
        self.deaths += 1
        self._tell(process, "is dead")

        def keep() -> None:
            rng = self._rng
            self._machine.block(rng.expovariate(5))
            if rng.random() < 0.6:
                evidence = Evidence(is_gone=True, note="seen by its keeper")
                with suppress(NineLivesError):
                    self._archive.end_sessions([process.name], Cause.DIED, evidence={process.name: evidence})
                self._tell(self._keeper, f"ended {process.name}")
            self._machine.block(rng.expovariate(2))
            self._start(name, life + 1)

        self._machine.spawn(self._keeper, keep, f"keeper of {name}")

    def close(self) -> None:
        """Let go of the event loops."""
        for loop in self._loops:
            loop.close()
