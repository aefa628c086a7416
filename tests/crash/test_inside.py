"""A commit that is killed at any of its writes is there whole or not at all."""

from __future__ import annotations

import pytest

from tests.crash import inside, syscalls
from tests.crash.forkserver import ForkServer

pytestmark = pytest.mark.skipif(bool(syscalls.reason_not_to()), reason=f"not run: {syscalls.reason_not_to()}")


def test_a_commit_killed_at_a_write_is_whole_or_not_there(server: ForkServer) -> None:
    kills, violations = inside.kill_commits(server, every=11)
    assert violations == []
    assert kills >= 8


def test_a_torn_commit_is_noticed(server: ForkServer) -> None:
    _, violations = inside.kill_commits(server, every=15, only="pwrite64", mutant="torn_commit")
    assert any("damaged" in violation for violation in violations)
