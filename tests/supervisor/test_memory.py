"""A step that eats all memory: the kernel kills its worker, it is told so, and all other runs complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.supervisor.fleets import AGENTS, Home, Up, wait_until

LIMIT_BYTES = 400 * 1024 * 1024
EATER = """
@nl.action
async def eat() -> str:
    if not Path("eaten").exists():
        Path("eaten").touch()
        eaten = []
        while True:
            eaten.append(bytearray(b"x" * 4_000_000))
    return "full"

@nl.agent
async def eater() -> str:
    return await eat()

@nl.action
async def nibble(number: int) -> int:
    note(nl.info().run, "nibble", number)
    await asyncio.sleep(0.01)
    return number

@nl.agent
async def innocent() -> int:
    return sum([await nibble(number) for number in range(3)])
"""


class Group:
    """A memory control group of our own, of the kernel's first or second kind."""

    def __init__(self) -> None:
        self._path = _make()

    def admit(self, pid: int) -> None:
        """Put a process, and all that it will start, into the group."""
        (self._path / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove the group; its processes must be gone."""
        wait_until(self._is_removed, f"{self._path} is busy")

    def _is_removed(self) -> bool:
        with suppress(OSError):
            self._path.rmdir()
        return not self._path.exists()


def _make() -> Path:
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        path = root / f"ninelives-{os.getpid()}"
        try:
            path.mkdir()
        except OSError:
            continue
        try:
            (path / limit).write_text(str(LIMIT_BYTES))
        except OSError:
            path.rmdir()
            continue
        for swap in ("memory.swap.max", "memory.memsw.limit_in_bytes"):
            with suppress(OSError):
                (path / swap).write_text(str(LIMIT_BYTES) if "memsw" in swap else "0")
        return path
    pytest.skip("no right to make a memory control group here (it takes root and a writable /sys/fs/cgroup)")


@pytest.fixture
def group() -> Iterator[Group]:
    made = Group()
    yield made
    made.remove()


def test_a_run_that_eats_all_memory_takes_no_other_with_it(tmp_path: Path, group: Group) -> None:
    home = Home(tmp_path, AGENTS + EATER)
    innocents = [f"innocent-{number}" for number in range(99)]
    with Up(home, "--processes", "2", "--concurrency", "20") as up:
        group.admit(up.process.pid)
        up.ready(2)
        home.start("eater", agent="eater")
        home.start(*innocents, agent="innocent")
        home.completed("eater", *innocents)
        up.said("killed by the kernel: out of memory")
