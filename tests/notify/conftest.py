"""What the tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ninelives.stores.memory import MemoryStore
from tests.clocks import SteppingClock
from tests.notify.receivers import Receiver
from tests.notify.scene import Scene


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
def scene(clock: SteppingClock) -> Scene:
    """Return a scene in memory, whose time a test moves."""
    return Scene(MemoryStore(clock=clock))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path
