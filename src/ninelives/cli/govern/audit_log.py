"""Options of `ninelives audit on|off|follow|anchor|verify|prove|export`: the log of what was decided.

Not to be confused with `ninelives store audit`, which checks all that a store holds for damage.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ninelives.cli.options import AsJson, Url
from ninelives.stores.open import DEFAULT_URL

app = typer.Typer(
    help="Log what was decided, in a way that shows every change. (To check a store: `store audit`.)",
    no_args_is_help=True,
)

By = Annotated[str | None, typer.Option("--by", help="Your name, which is logged; default: the login.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is logged.")]
Anchors = Annotated[
    list[str] | None,
    typer.Option("--anchor", metavar="WHERE", help="Where tree heads were anchored; may be repeated."),
]


@app.command()
def on(by: By = None, reason: Reason = "", store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Switch the audit log on. It begins with all runs that are in the store."""
    from ninelives.cli.govern import audit_log_commands as command

    command.switch(store, is_on=True, by=by, reason=reason, as_json=as_json)


@app.command()
def off(reason: Reason, by: By = None, store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Switch the audit log off. That is its last entry; what it has is kept."""
    from ninelives.cli.govern import audit_log_commands as command

    command.switch(store, is_on=False, by=by, reason=reason, as_json=as_json)


@app.command()
def follow(
    every: Annotated[str, typer.Option("--every", help="How often the journals are followed.")] = "5s",
    once: Annotated[bool, typer.Option("--once", help="Follow once, and exit.")] = False,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Add to the audit log what runs have recorded, until stopped.

    `up` and `worker` do so if the log is on when they start. It may be killed, and several may run.
    """
    from ninelives.cli.govern import audit_log_commands as command

    command.follow(store, every, is_once=once, as_json=as_json)


@app.command()
def anchor(
    to: Annotated[
        list[str],
        typer.Option(
            "--to",
            metavar="WHERE",
            help="A directory, git:DIRECTORY, s3://BUCKET/PREFIX, or - for stdout; may be repeated.",
        ),
    ],
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="Sign with this Ed25519 private key.")
    ] = None,
    every: Annotated[str, typer.Option("--every", help="Again and again, at this interval.")] = "",
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Keep the size and root of the audit log where the store's writers cannot change them.

    Exit 1 if the log does not continue what was anchored there before: it was cut or changed.
    """
    from ninelives.cli.govern import audit_log_commands as command

    command.anchor(store, to, key, every, as_json=as_json)


@app.command()
def verify(
    anchors: Anchors = None,
    public_key: Annotated[
        Path | None,
        typer.Option("--public-key", metavar="FILE", help="What is anchored must be signed by this key."),
    ] = None,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Check the audit log, what is anchored, and the runs against it. Changes nothing.

    Also that nothing was done without a verdict or an approval, where a policy governs.
    Exit 1 if anything is not as it was written.
    """
    from ninelives.cli.govern import audit_log_commands as command

    command.verify(store, anchors or [], public_key, as_json=as_json)


@app.command()
def prove(
    name: Annotated[
        str, typer.Argument(metavar="RUN|ENTRY", help="A run that has ended, or an entry's number or id.")
    ] = "",
    anchors: Anchors = None,
    since: Annotated[
        Path | None,
        typer.Option(
            "--since", metavar="FILE", help="Prove instead that the log continues this older tree head."
        ),
    ] = None,
    store: Url = DEFAULT_URL,
) -> None:
    """Print a proof that an entry is in the audit log, to be checked without the store.

    With --anchor, in the log as it was last anchored there. docs/audit-log.md has a program that checks it.
    """
    from ninelives.cli.govern import audit_log_commands as command

    command.prove(store, name, anchors or [], since)


@app.command()
def export(
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="The file to write; it must not exist. Default: stdout."),
    ] = None,
    store: Url = DEFAULT_URL,
) -> None:
    """Print all entries of the audit log, one JSON object on each line, as they are kept."""
    from ninelives.cli.govern import audit_log_commands as command

    command.export(store, to)
