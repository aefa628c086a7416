"""Full, failing and locked disks: nothing is acknowledged that is not there, and it goes on after."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash import syncs, syscalls
from tests.crash.forkserver import ForkServer

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not run: mounting needs root")
needs_strace = pytest.mark.skipif(
    bool(syscalls.reason_not_to()), reason=f"not run: {syscalls.reason_not_to()}"
)


@needs_root
def test_a_full_disk_pauses_and_goes_on_when_freed(server: ForkServer, home: Path) -> None:
    assert server.run("tests.crash.disk:full", home=str(home)).result() == []


def test_a_limit_on_file_size_pauses_and_goes_on_when_lifted(server: ForkServer, home: Path) -> None:
    assert server.run("tests.crash.disk:limited", home=str(home)).result() == []


@pytest.mark.parametrize("end_by", ["kill", "resume"])
def test_a_stopped_writer_locks_others_out_until_it_goes(server: ForkServer, home: Path, end_by: str) -> None:
    assert server.run("tests.crash.disk:locked_out", home=str(home), end_by=end_by).result() == []


@needs_strace
def test_a_failed_sync_ends_the_process_and_is_never_tried_again(server: ForkServer) -> None:
    failed, violations = syncs.fail_each(server, every=2)
    assert violations == []
    assert failed >= 4


@needs_strace
def test_retrying_a_failed_sync_is_noticed(server: ForkServer) -> None:
    _, violations = syncs.fail_each(server, every=4, mutant="sync_retried")
    assert any("more were made" in violation for violation in violations)
