"""`ninelives demo`: a support agent whose process is killed again and again, and what came of it.

    tickets   what customers write                     agent     the agent, as a user would write it
    shop      the shop's own service and ledger        model     the scripted model, or a real one
    worker    the process that is killed               children  starting and ending processes
    moments   when it is killed                        director  runs it without and with crashes
    judge     the four numbers                         screen    what a person sees

Everything happens in a temporary directory; nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; 0 when every number meets its target, 1 when one misses, 2 for a wrong call."""
    from ninelives.demo.command import run

    return run(argv)
