"""What every program under test shares: payloads, the command line, the answer. The standard library only.

A program is a module that knows some plays: `python -m benchmarks.programs.with_dbos sequence URL steps=200`
does one of them and prints what it measured as a line of JSON. It runs in the environment of what it tests.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from itertools import count
from pathlib import Path

PAYLOAD_BYTES = 1024
STEPS, KILLED_IN = 20, 10
ROOT = Path(__file__).parents[2]
Numbers = Mapping[str, int]
Play = Callable[[str, Numbers], Mapping[str, object]]
_PR_SET_PDEATHSIG = 1
_ROLE_BYTES = len('{"role":"assistant","content":""}')
_LIBC = ctypes.CDLL(None)
_RANDOM = base64.b64encode(os.urandom(3 << 18)).decode()
_STRIDE = 1031  # a prime, so that a million slices begin at a million places, and neighbours share nothing
_given = count()


def text() -> str:
    """Give 1 KiB of random text that no step had before: its chance cannot be compressed away."""
    first = next(_given) * _STRIDE % (len(_RANDOM) - PAYLOAD_BYTES)
    return _RANDOM[first : first + PAYLOAD_BYTES]


def fresh_text() -> str:
    """Give random text that nobody has seen: with its role and as JSON, a message of 1 KiB."""
    return base64.b85encode(os.urandom(PAYLOAD_BYTES)).decode()[: PAYLOAD_BYTES - _ROLE_BYTES]


class Doom:
    """Kills this process once so many have arrived."""

    def __init__(self) -> None:
        self._arrived = 0

    def arrive(self, runs: int) -> None:
        """Count one more; the last one does not return."""
        self._arrived += 1
        if self._arrived >= runs:
            os.kill(os.getpid(), signal.SIGKILL)


def is_doomed() -> bool:
    """Say whether this life is to be killed in step 11."""
    return "BENCH_DIES" in os.environ


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent has ended."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def weight(*names: str) -> int:
    """Return the bytes that packages and all that they require take in this environment."""
    seen: set[str] = set()
    waiting, total = list(names), 0
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        with suppress(metadata.PackageNotFoundError):
            found = metadata.distribution(name)
            waiting += [
                re.split(r"[^A-Za-z0-9_.-]", line)[0]
                for line in found.requires or ()
                if "extra ==" not in line
            ]
            paths = (Path(str(found.locate_file(file))) for file in found.files or ())
            total += sum(path.stat().st_size for path in paths if path.is_file())
    return total


def node_weight() -> int:
    """Return the bytes of the server that npm has installed beside this environment."""
    modules = Path(sys.prefix) / "node_modules"
    return sum(path.stat().st_size for path in modules.rglob("*") if path.is_file())


def perform(plays: Mapping[str, Play], arguments: Sequence[str] | None = None) -> None:
    """Do what the command line asks for, say what came of it, and end at once."""
    play, url, *rest = sys.argv[1:] if arguments is None else arguments
    numbers = {name: int(value) for name, _, value in (word.partition("=") for word in rest)}
    answer = plays[play](url, numbers)
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()
    os._exit(0)  # some leave threads behind that nobody needs
