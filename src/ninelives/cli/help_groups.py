"""The commands in groups, as `ninelives --help` lists them: first what a newcomer needs."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperGroup

GROUPS: Final = {
    "Begin here": ("demo", "run", "chaos", "doctor"),
    "Execute runs": ("start", "up", "worker", "check"),
    "See what happens": ("status", "ps", "show", "watch", "recoveries", "usage", "savings", "snapshot"),
    "Answer and control": (
        *("inbox", "approve", "deny", "resolve", "signal"),
        *("retry", "pause", "resume", "cancel", "fork"),
    ),
    "Govern": ("policy", "budget", "approvers", "halt", "unhalt", "halts", "audit"),
    "Monitor": ("metrics", "alerts", "grafana", "notify", "health"),
    "Keep and move data": ("store", "cache", "export", "import", "move"),
}
OTHERS = "Others"


class GroupedCommands(TyperGroup):
    """Lists the commands by what people want to do."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 (click's)
        """Write a section for each group."""
        left = dict(self.commands)
        found = {
            title: [(name, left.pop(name)) for name in names if name in left]
            for title, names in GROUPS.items()
        }
        for title, commands in {**found, OTHERS: list(left.items())}.items():
            lines = [
                (name, one.get_short_help_str(formatter.width - 14))
                for name, one in commands
                if not one.hidden
            ]
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)
