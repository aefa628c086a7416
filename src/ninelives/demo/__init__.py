"""`ninelives demo`: kill a support agent's worker again and again, and measure how its runs recover.

It is played on chaos: each stage is one trial, executed by forked processes that kill themselves.

    agent    the agent, as a user would write it      model    the scripted model, or a real one
    shop     the shop's HTTP service and ledger       kills    when to kill: chaos' faults, drawn from a seed
    board    the tickets, followed in the ledger      judge    the four numbers
    screen   live table, log lines, report            command  options, both stages, exit code
    tickets  what customers write

All files live in a temporary directory that is removed at the end.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo. Return 0 when every number meets its target, 1 when one misses, 2 for a usage error."""
    from ninelives.demo.command import run

    return run(argv)
