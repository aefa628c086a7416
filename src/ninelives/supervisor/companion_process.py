"""The first moments of a companion: it asks to be killed with its supervisor, then becomes the command.

`python -m ninelives.supervisor.companion_process SUPERVISOR_PID WORDS...`
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replace this process by `python -m ninelives WORDS...`."""
    supervisor, *words = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # CRASH: the supervisor may have died before the call above; then no signal comes.
    if os.getppid() != int(supervisor):
        sys.exit(0)
    os.execv(sys.executable, [sys.executable, "-m", "ninelives", *words])  # noqa: S606 (no shell on purpose)


if __name__ == "__main__":
    main()
