"""The command, as a person calls it, on a directory with an agent in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from msgspec import Struct


class Ran(Struct, frozen=True):
    """How the command ended."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """Return the report for machines."""
        assert self.out, self.err
        report: dict[str, Any] = json.loads(self.out)
        return report


def chaos(home: Path, *words: str, **environment: str) -> Ran:
    """Run `ninelives chaos` in a directory."""
    done = subprocess.run(
        [sys.executable, "-m", "ninelives", "chaos", *words],
        cwd=home,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
