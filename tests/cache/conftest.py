"""The bench that tests of kept answers stand at, once per store."""

from __future__ import annotations

from tests.contract.conftest import bench

__all__ = ["bench"]
