"""Run a task in a process of its own, started from nothing: for strace, and for limits that last.

`python -m tests.crash.lone module:name '{"argument": …}'`
"""

from __future__ import annotations

import importlib
import os
import sys

import msgspec


def main() -> None:
    """Run the task; its answer goes to stdout."""
    module, _, name = sys.argv[1].partition(":")
    told = getattr(importlib.import_module(module), name)(**msgspec.json.decode(sys.argv[2]))
    os.write(1, msgspec.json.encode(told))


if __name__ == "__main__":
    main()
