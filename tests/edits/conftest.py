"""Generated agents take the place of what is declared; afterwards it is put back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ninelives.engine import context
from ninelives.engine.spec.registry import AGENTS, STEPS


@pytest.fixture
def declarations() -> Iterator[None]:
    """Put back what was declared before."""
    known = dict(AGENTS), dict(STEPS)
    yield
    AGENTS.clear()
    AGENTS.update(known[0])
    STEPS.clear()
    STEPS.update(known[1])


@pytest.fixture(autouse=True)
def _count_runtimes_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the runtimes of this process as before: a life under a planted bug may leave its own open."""
    monkeypatch.setattr(context, "_runtimes", context._runtimes)
