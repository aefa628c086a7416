"""The bench that every contract test stands at, once per store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clocks import SteppingClock
from tests.contract.benches import STORES, Bench, make_bench


@pytest.fixture(params=STORES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """Yield a fresh store of each kind."""
    made = make_bench(request.param, SteppingClock(), tmp_path)
    yield made
    made.close()
