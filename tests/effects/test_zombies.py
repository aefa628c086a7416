"""Stopped between intent and effect, past its lease, and woken: it was never said not to have happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ninelives.core.model.run import Kind
from tests.crash.stores import BLIND, DURABLE, open_at, scratch
from tests.effects.lives import EffectsServer
from tests.effects.service import Service

DEADLINE_SECONDS = 60.0
LIFE, ANSWER = "tests.effects.lives:life", "tests.effects.lives:answer"


def is_stopped(pid: int) -> bool:
    """Tell whether the process stands still."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def until(condition: Any) -> Any:
    """Ask until a condition gives something."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@contextmanager
def stopped_in_payment(
    ground: Path, service: Service, *, elsewhere: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker and yield it when it stands still in its payment."""
    code = (
        f"from tests.effects.lives import zombie; zombie({str(ground)!r}, {service.port}, 'o', {elsewhere=})"
    )
    zombie = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    try:
        until(lambda: is_stopped(zombie.pid))
        yield zombie
        os.kill(zombie.pid, signal.SIGCONT)
        zombie.wait(DEADLINE_SECONDS)  # it has lost its lease, and finds out
    finally:
        zombie.kill()
        zombie.wait()


@pytest.mark.parametrize("kind", DURABLE)
def test_what_a_stopped_worker_may_still_do_is_not_called_not_happened(tmp_path: Path, kind: str) -> None:
    with scratch(kind) as ground, Service(tmp_path / "ledger") as service, EffectsServer() as server:
        given: dict[str, Any] = {"home": str(ground), "port": service.port, "order": "o", "kind": "stopped"}
        with stopped_in_payment(ground, service):
            ended = until(lambda: _ended(server, given))
            assert (ended["state"], len(ended["items"])) == ("escalated", 1)
        happened = service.effects("o")
        assert happened <= 1
        server.run(ANSWER, home=str(ground), port=service.port, happened=bool(happened), number=1).result()
        assert server.run(LIFE, **given).result()["state"] == "completed"
        assert service.effects("o") == 1
        store = open_at(ground)
        kinds = [record.kind for record in store.load_journal("o", since=0).records]
        store.close()
    assert (Kind.VOIDED in kinds) is not bool(happened)


@pytest.mark.parametrize("kind", BLIND)
def test_where_nobody_sees_that_it_lives_the_limit_of_the_action_holds_it_back_and_it_does_not_go_on(
    tmp_path: Path, kind: str
) -> None:
    with scratch(kind) as ground, Service(tmp_path / "ledger") as service, EffectsServer() as server:
        given: dict[str, Any] = {"home": str(ground), "port": service.port, "order": "o", "kind": "stopped"}
        with stopped_in_payment(ground, service, elsewhere=True):
            assert until(lambda: _ended(server, given))["state"] == "completed"
        assert service.effects("o") == 1


def _ended(server: EffectsServer, given: dict[str, Any]) -> Any:
    ended = server.run(LIFE, **given).result()
    return ended if ended["state"] in ("escalated", "completed") else None
