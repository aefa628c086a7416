"""`ninelives approvers`: check a file of approvers before workers load it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ninelives.cli.options import AsJson

app = typer.Typer(no_args_is_help=True, help="Check a file of approvers.")


@app.callback()
def _group() -> None:
    """Check a file of approvers."""


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file, such as approvers.toml.")],
    as_json: AsJson = False,
) -> None:
    """Check a file of approvers, and list the people in it.

    Exit 0 sound, 2 something in it is wrong or unknown.
    """
    from ninelives.cli.output import emit_json, emit_table
    from ninelives.governance.approvers.people import read_people
    from ninelives.governance.approvers.ssh_signature import require_library, write_key

    require_library()
    found = read_people(file)
    people = found.by_name.values()
    if as_json:
        emit_json(
            {
                "digest": found.digest,
                "people": [
                    {"name": one.name, "roles": sorted(one.roles), "keys": [*map(write_key, one.keys)]}
                    for one in people
                ],
            }
        )
        return
    emit_table(
        ("person", "roles", "keys"),
        [(one.name, ", ".join(sorted(one.roles)), str(len(one.keys))) for one in people],
    )
