"""Every command is in a group of `ninelives --help`."""

from __future__ import annotations

import typer

from ninelives.cli.app import app
from ninelives.cli.help_groups import GROUPS, GroupedCommands


def test_every_command_is_in_one_group() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, GroupedCommands)
    grouped = [name for names in GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))
    assert set(group.commands) <= set(grouped)
