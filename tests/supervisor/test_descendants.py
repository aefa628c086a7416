"""Whose processes are swept: those of dead supervisors of the same store, and of no others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ninelives.supervisor import descendants
from ninelives.supervisor.protocol import SUPERVISOR_MARK

OURS, OTHER = "sqlite:///tests/strays/ours.db", "sqlite:///tests/strays/other.db"


def dead_supervisor(store: str) -> str:
    """Name a supervisor that has died."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        name = descendants.supervisor_mark(process.pid, store)
        process.kill()
    return name


class Marked:
    """Starts processes that carry a mark."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self, mark: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "1000"], env={**os.environ, SUPERVISOR_MARK: mark})
        self.started.append(process)
        return process


@pytest.fixture
def marked() -> Iterator[Marked]:
    starts = Marked()
    yield starts
    for process in starts.started:
        process.kill()
        process.wait()


def test_only_what_dead_supervisors_of_the_same_store_have_left_is_killed(marked: Marked) -> None:
    orphan = marked(dead_supervisor(OURS))
    spared = [
        marked(dead_supervisor(OTHER)),
        marked(descendants.supervisor_mark(os.getpid(), OURS)),
        marked("no mark's name"),
    ]
    assert descendants.sweep_orphaned_workers(OURS) == [orphan.pid]
    orphan.wait()
    assert descendants.sweep_orphaned_workers(OURS) == []
    assert [one.poll() for one in spared] == [None, None, None]


INSIDE = f"""
import os, subprocess, sys
from ninelives.supervisor import descendants
from ninelives.supervisor.protocol import SUPERVISOR_MARK
mark = descendants.supervisor_mark(os.getpid(), {OURS!r})
worker = subprocess.Popen(["sleep", "1000"], env={{**os.environ, SUPERVISOR_MARK: mark}})
print(mark, flush=True)
sys.stdin.read()
"""


def test_a_supervisor_on_the_host_kills_no_worker_of_a_container() -> None:
    """From the host a container's processes can be seen, and their supervisor's number names nobody."""
    if os.geteuid() != 0:
        pytest.skip("needs root: unshare makes a namespace of processes")
    apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", INSIDE]
    with subprocess.Popen(apart, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as container:
        try:
            assert container.stdout is not None
            mark = container.stdout.readline().strip()
            workers = [one.pid for one in descendants.processes() if one.marks.get(SUPERVISOR_MARK) == mark]
            assert len(workers) == 1
            assert descendants.sweep_orphaned_workers(OURS) == []
            assert descendants.read_process(workers[0]) is not None
            assert not descendants.is_left_of(int(mark.partition("-")[0]))
        finally:
            container.kill()
