"""One fork server per test process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.forkserver import ForkServer
from tests.crash.stores import scratch


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """Yield a fork server."""
    with ForkServer() as running:
        yield running


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a directory in memory: what a kill leaves does not depend on the disk."""
    with scratch() as made:
        yield made


@pytest.fixture
def disk_home() -> Iterator[Path]:
    """Yield a directory on the disk."""
    with scratch(in_memory=False) as made:
        yield made
