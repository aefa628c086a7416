"""Killed in every window around an effect: what happened is never repeated blindly, and never left unsaid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.forkserver import ForkServer
from tests.crash.stores import bury
from tests.effects.lives import WINDOWS, EffectsServer
from tests.effects.races import race
from tests.effects.service import Service

LIFE, ANSWER = "tests.effects.lives:life", "tests.effects.lives:answer"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with EffectsServer() as server:
        yield server


@pytest.fixture(scope="module")
def rival() -> Iterator[ForkServer]:
    with EffectsServer() as server:
        yield server


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path / "ledger") as service:
        yield service


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", ["verified", "resumable", "keyed"])
def test_killed_in_a_window_it_takes_effect_once(
    server: ForkServer, service: Service, ground: Path, kind: str, window: str
) -> None:
    given: dict[str, Any] = {"home": str(ground), "port": service.port, "kind": kind, "order": "o"}
    assert server.run(LIFE, **given, window=window).was_killed
    bury(ground)
    ended = server.run(LIFE, **given).result()
    assert ended["state"] == "completed"
    assert ended["result"]["order"] == "o"
    assert service.effects("o") == 1


@pytest.mark.parametrize("window", ["intent committed", "request sent", "result uncommitted"])
def test_what_nobody_can_look_up_goes_to_a_person(
    server: ForkServer, service: Service, ground: Path, window: str
) -> None:
    given: dict[str, Any] = {"home": str(ground), "port": service.port, "kind": "blind", "order": "o"}
    assert server.run(LIFE, **given, window=window).was_killed
    bury(ground)
    ended = server.run(LIFE, **given).result()
    assert (ended["state"], len(ended["items"])) == ("escalated", 1)
    happened = service.effects("o")
    assert happened <= 1
    server.run(ANSWER, home=str(ground), port=service.port, happened=bool(happened), number=7).result()
    ended = server.run(LIFE, **given).result()
    assert ended["state"] == "completed"
    assert service.effects("o") == 1


def test_a_dropped_reply_is_looked_up(server: ForkServer, service: Service, ground: Path) -> None:
    given: dict[str, Any] = {"home": str(ground), "port": service.port, "kind": "dropped", "order": "o"}
    ended = server.run(LIFE, **given).result()
    assert (ended["state"], ended["result"]) == ("completed", {"order": "o", "number": 1})
    assert service.effects("o") == 1


@pytest.mark.parametrize("kind", ["keyed", "keyed-resumable"])
def test_two_processes_race_for_a_key_and_one_is_killed(
    server: ForkServer, rival: ForkServer, service: Service, ground: Path, kind: str
) -> None:
    most = race(server, rival, service, ground, kind, 0, "before")
    assert most > 5
    for call, side in ((3, "before"), (5, "after"), (7, "before"), (9, "after"), (11, "before")):
        race(server, rival, service, ground, kind, call, side)
