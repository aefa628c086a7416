"""`ninelives policy`: check a policy file, run its tests, show it, and try it on what was done."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ninelives.cli.options import AsJson, Url
from ninelives.stores.open import DEFAULT_URL

app = typer.Typer(help="Check, test, show and try policy files.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(metavar="FILE", help="The policy file (TOML).")]
Modules = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE_OR_MODULE]...", help="The files or modules that declare the actions."),
]


@app.command()
def check(file: File, modules: Modules = None, as_json: AsJson = False) -> None:
    """Check a policy file, against the actions that your modules declare.

    Without a module only its form is checked, not its names and types.
    Exit 0 sound, 1 faults (a process would not start with it), 2 wrong usage.
    """
    from ninelives.cli.govern import policy_reports as command

    command.check(file, modules or [], as_json=as_json)


@app.command("test")
def run_tests(
    file: File,
    modules: Modules = None,
    verbose: Annotated[bool, typer.Option("--all", help="Also list the tests that pass.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the tests of a policy file: its [[test]] tables.

    Exit 0 all pass, 1 some fail, 2 wrong usage, or the file is not sound.
    """
    from ninelives.cli.govern import policy_reports as command

    command.test(file, modules or [], verbose=verbose, as_json=as_json)


@app.command()
def show(
    named: Annotated[
        str,
        typer.Argument(metavar="[FILE_OR_DIGEST]", help="A policy file, or the digest of one in the store."),
    ] = "",
    text: Annotated[bool, typer.Option("--text", help="Print its text.")] = False,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show a policy's rules; without a name, which policies have governed runs of the store."""
    from ninelives.cli.govern import policy_reports as command

    command.show(named, text=text, url=store, as_json=as_json)


@app.command("try")
def try_(
    file: File,
    modules: Modules = None,
    since: Annotated[str, typer.Option("--since", help="Judge calls of this age and younger.")] = "30d",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="List at most N changes.")] = 20,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Judge again what was done, and show what the policy would change. Changes nothing.

    A journal keeps the first 60 characters of an argument: what cannot be judged by that is counted apart.
    Exit 0, also if it would change something; 2 wrong usage, or the file is not sound.
    """
    from ninelives.cli.govern import policy_reports as command

    command.try_(file, modules or [], since=since, limit=limit, url=store, as_json=as_json)
