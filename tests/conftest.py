"""What holds for every test: agents that a test declares are forgotten with it.

Which tests share a process is the scheduler's choice; no test may see the names of another's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ninelives.engine.agent import declassify as declassify  # noqa: PLC0414 (declares an action, once)
from ninelives.engine.spec.registry import AGENTS, RIVALS, STEPS
from tests.crash.stores import DURABLE, scratch


@pytest.fixture(autouse=True)
def _forget_agents() -> Iterator[None]:
    """Forget the agents and steps that a test declared."""
    known, steps, rivals = dict(AGENTS), dict(STEPS), dict(RIVALS)
    yield
    AGENTS.clear()
    AGENTS.update(known)
    STEPS.clear()
    STEPS.update(steps)
    RIVALS.clear()
    RIVALS.update(rivals)


@pytest.fixture(params=DURABLE)
def ground(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Yield a directory whose store (`tests.crash.stores.open_at`) is of each durable kind."""
    with scratch(request.param) as home:
        yield home
