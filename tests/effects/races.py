"""Two processes race for one business key, and one of them dies at a call of its store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.crash.forkserver import ForkServer
from tests.crash.stores import bury
from tests.effects.service import Service

RACER = "tests.effects.lives:racer"


def race(
    server: ForkServer, rival: ForkServer, service: Service, home: Path, kind: str, call: int, side: str
) -> int:
    """Race two processes for one key, one of which dies; returns how many calls of the store it made."""
    order = f"{kind}-{call}-{side}"
    given: dict[str, Any] = {"home": str(home), "port": service.port, "kind": kind, "order": order}
    with ThreadPoolExecutor(2) as pool:
        dying = pool.submit(server.run, RACER, **given, run=f"{order}-a", call=call, side=side)
        other = pool.submit(rival.run, RACER, **given, run=f"{order}-b")
        death = dying.result()
        bury(home)
        living = other.result().result()
    calls = 0 if death.was_killed else int(death.result()["calls"])
    again = server.run(RACER, **given, run=f"{order}-a").result()
    assert again["result"] == living["result"]
    assert service.effects(order) == 1
    return calls
