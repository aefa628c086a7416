"""The command `ninelives`: what there is, and how it ends.

Exit codes: 0 done, 1 something is wrong with what was looked at, 2 wrong call, 4 store unusable.
"""

from __future__ import annotations

import sys

import typer

from ninelives import __version__
from ninelives.cli import store
from ninelives.core.errors import NineLivesError, StoreError

EXIT_USAGE, EXIT_STORE = 2, 4

app = typer.Typer(
    name="ninelives",
    help="A crash-only runtime for AI agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(store.app, name="store")


@app.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(False, "--version", help="Show the version and end."),
) -> None:
    """Say who we are."""
    if version:
        typer.echo(f"ninelives {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command; our errors become one line each and an exit code."""
    try:
        app()
    except StoreError as error:
        _end(error, EXIT_STORE)
    except NineLivesError as error:
        _end(error, EXIT_USAGE)


def _end(error: NineLivesError, code: int) -> None:
    typer.echo(f"ninelives: {type(error).__name__}: {error}", err=True)
    sys.exit(code)
