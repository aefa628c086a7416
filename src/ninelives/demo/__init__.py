"""`ninelives demo`: kill a support agent's worker again and again, and measure how its runs recover.

    tickets   the customers' messages                  agent       the agent, as a user would write it
    shop      the shop's HTTP service and ledger       model       the scripted model, or a real one
    worker    the process that is killed               children    start and end processes
    moments   when to kill it                          director    one stage, without or with crashes
    judge     the four numbers                         screen      live table, log lines, report
    command   options and exit code                    store_urls  the stores of both stages on a server

All files live in a temporary directory that is removed at the end.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo. Return 0 when every number meets its target, 1 when one misses, 2 for a usage error."""
    from ninelives.demo.command import run

    return run(argv)
