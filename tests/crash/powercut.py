"""Power cuts: a filesystem of our own that loses, at a word, all that was not synced.

A loop-mounted xfs is shut down by `xfs_io -x -c shutdown` while writers are stopped in mid-flight; what the
ledger (on another filesystem) holds as acknowledged must be there after the next mount. Beside the store a
plain write+fsync runs as control: if that loses anything, the machine lies and the result means nothing.
Needs root, mkfs.xfs, xfs_io and loop devices; without them it is "not run", never "passed".

The mounts live in a mount namespace of the task's own process, so they go with it, however it goes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct, to_builtins

from ninelives.core.model.run import Kind, NewRun
from ninelives.engine.commit.ticket import Draft, Tail
from tests.crash import judge, mutants, processes
from tests.crash.duels import AGENT, Duellist
from tests.crash.ledger import Entry, Fact, Ledger, count, read

_IMAGE_BYTES = 320 * 1024 * 1024
_TOOLS = ("mkfs.xfs", "xfs_io", "mount", "umount")
_BLOCK = 512


class Cuts(Struct):
    """What a series of power cuts came to."""

    cuts: int = 0
    acknowledged: int = 0
    lost: int = 0
    control_acknowledged: int = 0
    control_lost: int = 0
    violations: list[str] = []

    def __add__(self, other: Cuts) -> Cuts:
        return Cuts(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


def reason_not_to() -> str:
    """Say why power cuts cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    if not Path("/dev/loop-control").exists():
        return "needs loop devices"
    return _trial()


def _trial() -> str:
    """Mount and shut down once, in a child with mounts of its own."""
    reader, writer = os.pipe()

    def attempt() -> None:
        try:
            with mounted():
                pass
        except (OSError, subprocess.CalledProcessError) as error:
            told = getattr(error, "stderr", b"") or str(error).encode()
            os.write(writer, told[:300])

    pid = processes.fork(attempt)
    os.close(writer)
    processes.collect(pid, 30)
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read().decode(errors="replace").strip()


class Disk:
    """A filesystem whose power can be cut."""

    def __init__(self, image: Path, point: Path) -> None:
        self.point, self._image = point, image

    def mount(self) -> None:
        """Bring it up, replaying its log."""
        _sh("mount", "-o", "loop", str(self._image), str(self.point))

    def cut(self) -> None:
        """Cut the power: nothing that is in memory only will ever be written."""
        _sh("xfs_io", "-x", "-c", "shutdown", str(self.point))

    def unmount(self) -> None:
        """Take it away."""
        _sh("umount", str(self.point))


@contextmanager
def mounted() -> Iterator[Disk]:
    """Make an xfs in a file and mount it, for this process and its children only."""
    processes.private_mounts()
    home = Path(tempfile.mkdtemp(prefix="ninelives-power-"))
    image, point = home / "image", home / "mount"
    point.mkdir()
    disk = Disk(image, point)
    try:
        with image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        _sh("mkfs.xfs", "-q", "-f", str(image))
        disk.mount()
        try:
            yield disk
        finally:
            subprocess.run(["umount", "-l", str(point)], capture_output=True, check=False)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _sh(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)


def series(home: str, seed: int, cuts: int, *, mutant: str = "") -> dict[str, Any]:
    """Cut the power so many times under load; a task of the fork server.

    With a mutant it stops at the first violation: that is all that was asked.
    """
    tally = Cuts()
    rng = Random(seed)
    ledger, control = Path(home) / "ledger", Path(home) / "control"
    with mounted() as disk:
        for number in range(cuts):
            wanted = rng.randrange(1, 60)
            _one_cut(disk, ledger, control, wanted, f"writer-{number}", mutant)
            tally.cuts += 1
            _look(disk, ledger, control, tally, f"seed {seed}, cut {number}")
            if tally.violations and mutant:
                break
    return dict(to_builtins(tally))


def _one_cut(disk: Disk, ledger: Path, control: Path, wanted: int, name: str, mutant: str) -> None:
    before = count(ledger, Fact.APPENDED), count(control, Fact.APPENDED)
    work = [
        lambda: _write_for_ever(str(disk.point), ledger, name, mutant),
        lambda: _control_for_ever(disk.point / "control", control),
    ]
    pids = [processes.fork(one) for one in work]
    try:
        processes.until(
            lambda: (
                count(ledger, Fact.APPENDED) - before[0] >= wanted
                and count(control, Fact.APPENDED) - before[1] >= 3
            )
        )
        # Stopped first: an acknowledgement on its way while the power goes would be nobody's lie.
        for pid in pids:
            processes.stop(pid)
        disk.cut()
    finally:
        for pid in pids:
            processes.kill(pid)
    disk.unmount()
    disk.mount()


def _write_for_ever(home: str, ledger: Path, name: str, mutant: str) -> None:
    mutants.plant(mutant)
    me = Duellist(home, name)
    me.ledger = Ledger(ledger)
    run = f"run of {name}"
    me.store.create_runs([NewRun(id=run, agent=f"{AGENT}-{name}", fingerprint=b"f", body=b"")])
    me.ledger.write(Fact.CREATED, run)
    (claimed,) = me.store.claim_runs(name, 1, {f"{AGENT}-{name}": 1}).runs
    me.ledger.write(Fact.CLAIMED, run, name, epoch=claimed.epoch)
    tail = Tail(claimed)
    number = 0
    while True:
        number += 1
        draft: Draft = (Kind.RESULT, f"step {number}", os.urandom(70_000 if number % 20 == 0 else 500))
        me.commit(tail, [draft])


def _control_for_ever(path: Path, told: Path) -> None:
    ledger = Ledger(told)
    fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    while True:
        os.write(fd, b"x" * _BLOCK)
        os.fsync(fd)
        ledger.write(Fact.APPENDED)


def _look(disk: Disk, ledger: Path, control: Path, tally: Cuts, label: str) -> None:
    entries = list(read(ledger))
    tally.acknowledged = sum(entry.fact is Fact.APPENDED for entry in entries)
    tally.control_acknowledged = count(control, Fact.APPENDED)
    plain = disk.point / "control"
    kept = plain.stat().st_size // _BLOCK if plain.exists() else 0
    tally.control_lost = max(0, tally.control_acknowledged - kept)
    found = _judged(disk.point, entries)
    tally.lost += len(found)
    tally.violations += [f"{label}: {violation}" for violation in found[:5]]


def _judged(home: Path, entries: list[Entry]) -> list[str]:
    """Judge in a child: this process must stay without a store, for it forks."""
    reader, writer = os.pipe()

    def look() -> None:
        found = judge.judged(home, entries)
        os.write(writer, "\n".join(found)[:60_000].encode())

    pid = processes.fork(look)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read().decode()
    code = processes.collect(pid)
    return [line for line in told.split("\n") if line] + ([f"the judge ended with {code}"] if code else [])
