"""Which code it is that is run: the commit, and whether anything was changed since."""

from __future__ import annotations

import subprocess
from pathlib import Path

UNKNOWN = "unknown"
CHANGED = "+changes"


def commit(root: Path = Path(__file__).parents[2]) -> str:
    """Name the commit of a directory, with a mark when its files are not those of the commit."""
    name = _git(root, "rev-parse", "--short=12", "HEAD")
    if not name:
        return UNKNOWN
    return f"{name}{CHANGED}" if _git(root, "status", "--porcelain") else name


def _git(root: Path, *words: str) -> str:
    try:
        told = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return told.stdout.strip()
