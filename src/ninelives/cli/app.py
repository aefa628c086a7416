"""The command `ninelives`: what there is, and how it ends.

Exit codes: 0 done, 1 failed (or something is wrong with what was looked at), 2 wrong call, 3 waits for a
person, 4 store unusable; 130 and 143 stopped by Ctrl-C or SIGTERM, 141 nobody read the output.

Commands load what they need when they are called, so that asking for help costs little.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ninelives import __version__
from ninelives.cli import commands_people
from ninelives.cli.commands import store as upkeep
from ninelives.cli.options import EXIT_FAILED, EXIT_STORE, EXIT_USAGE, AsJson, Url
from ninelives.core.errors import NineLivesError, StoreError, UsageError
from ninelives.stores.open import DEFAULT_URL

RunId = Annotated[str, typer.Argument(metavar="ID", help="The run's id.")]

app = typer.Typer(
    name="ninelives",
    help="A crash-only runtime for AI agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(False, "--version", help="Show the version and end."),
) -> None:
    """Say who we are."""
    if version:
        typer.echo(f"ninelives {__version__}")
        raise typer.Exit


@app.command()
def run(
    target: Annotated[
        str, typer.Argument(metavar="FILE_OR_MODULE:AGENT", help="Where the agent is, and its name.")
    ],
    args: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JSON]...", help="Its arguments, as JSON or plain words; after -- if one begins with -."
        ),
    ] = None,
    arg: Annotated[
        list[str] | None, typer.Option("--arg", metavar="NAME=JSON", help="An argument by its name.")
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="The run's id; the same id goes on with it.")] = None,
    store: Url = DEFAULT_URL,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Only start it; a worker carries it out.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a run or go on with it, work on it here, and print its result.

    Exit 0 completed, 1 failed or cancelled, 2 wrong call, 3 waits for a person, 4 store unusable.
    """
    from ninelives.cli.commands import run as command
    from ninelives.cli.commands import start

    if no_wait:
        start.start(target, args or [], named=arg or [], id=id, url=store, as_json=as_json)
    else:
        command.run(target, args or [], named=arg or [], id=id, url=store, as_json=as_json)


Code = Annotated[
    str, typer.Argument(metavar="FILE_OR_MODULE", help="Where the agents are: a file, or a module.")
]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, help="Runs at once, in each process.")]
Lease = Annotated[
    float, typer.Option("--lease", help="Seconds until the runs of a lost machine are taken over.")
]
Hang = Annotated[
    float,
    typer.Option("--hang", help="Seconds that an event loop may be blocked before its worker is killed."),
]


Limits = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="AGENT=N", help="Of this agent at most so many at once in each process."),
]


Backoff = Annotated[
    float, typer.Option("--backoff", min=0, help="Longest pause, in seconds, of a worker that keeps dying.")
]


@app.command()
def worker(
    target: Code,
    store: Url = DEFAULT_URL,
    concurrency: Concurrency = 100,
    limit: Limits = None,
    processes: Annotated[int, typer.Option("--processes", min=1, max=1000, help="Worker processes.")] = 1,
    lease: Lease = 10.0,
    hang: Hang = 30.0,
    backoff: Backoff = 5.0,
) -> None:
    """Work on runs until told to stop: a supervisor that restarts what dies and kills what hangs.

    SIGTERM stops it (no life is lost), SIGHUP restarts every worker with new code, one after the other.
    """
    from ninelives.cli.commands import up as command

    command.keep(target, store, concurrency, limit or [], processes, lease, hang, backoff)


@app.command()
def up(
    target: Code,
    store: Url = DEFAULT_URL,
    concurrency: Concurrency = 100,
    limit: Limits = None,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, max=1000, help="Worker processes; else one per CPU.")
    ] = None,
    lease: Lease = 10.0,
    hang: Hang = 30.0,
    backoff: Backoff = 5.0,
) -> None:
    """Bring everything up: as `worker`, with a process for each CPU."""
    from ninelives.cli.commands import up as command

    command.keep(target, store, concurrency, limit or [], processes, lease, hang, backoff)


@app.command()
def check(
    target: Code,
    store: Url = DEFAULT_URL,
    limit: Annotated[
        float, typer.Option("--limit", help="Seconds that a run's code may take to its next step.")
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Replay all runs in flight against new code, executing nothing, and name those that would not go on.

    Exit 0 all fit, 1 some do not, 2 wrong call or code that cannot be loaded, 4 store unusable.
    """
    from ninelives.cli.commands import check as command

    command.check(target, store, limit_seconds=limit, as_json=as_json)


@app.command()
def ps(
    status: Annotated[list[str] | None, typer.Option("--status", help="Only runs in this state.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Only runs of this agent.")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Only runs with it.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")] = 50,
    after: Annotated[int | None, typer.Option("--after", help="Go on after the run of this number.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first, and where each of them is."""
    from ninelives.cli.commands import ps as command

    command.ps(
        store,
        statuses=status or [],
        agent=agent,
        labels=label or [],
        limit=limit,
        after=after,
        every=every,
        as_json=as_json,
    )


@app.command()
def show(
    run: RunId,
    log: Annotated[bool, typer.Option("--log", help="Only what the run logged with nl.log.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=0, help="So many of the last records; 0: all.")] = 50,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show where a run is: position, pending operations, what it waits for, last error, history."""
    from ninelives.cli.commands import show as command

    command.show(store, run, log=log, limit=limit, as_json=as_json)


@app.command()
def recoveries(
    run: Annotated[str | None, typer.Argument(metavar="[ID]", help="Of this run only.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 50,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show the recovery log, newest first: what died, who took over, what was replayed and what verified."""
    from ninelives.cli.commands import recoveries as command

    command.recoveries(store, run, limit=limit, as_json=as_json)


@app.command()
def snapshot(
    run: RunId,
    out: Annotated[Path | None, typer.Option("--out", help="The file; it must not exist yet.")] = None,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Write all that is stored of a run to a file of its own, for debugging."""
    from ninelives.cli.commands import snapshot as command

    command.snapshot(store, run, out, as_json=as_json)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
)
def demo(context: typer.Context) -> None:
    """Watch a support agent being killed -9 and going on; --help shows its options."""
    from ninelives.demo import main as show

    sys.exit(show(context.args))


@app.command()
def chaos(  # noqa: PLR0917 (each is an option of its own)
    target: Annotated[
        str, typer.Argument(metavar="FILE_OR_MODULE:AGENT", help="Where the agent is, and its name.")
    ],
    args: Annotated[list[str] | None, typer.Argument(metavar="[JSON]...", help="Its arguments.")] = None,
    arg: Annotated[
        list[str] | None, typer.Option("--arg", metavar="NAME=JSON", help="An argument by its name.")
    ] = None,
    kills: Annotated[int, typer.Option("--kills", min=1, max=10_000, help="Kills at random moments.")] = 20,
    seconds: Annotated[float, typer.Option("--seconds", help="Begin nothing new after so many.")] = 60.0,
    at: Annotated[
        str,
        typer.Option("--at", metavar="MOMENT", help="every-step, random or FILE:LINE; else all there is."),
    ] = "",
    seed: Annotated[int, typer.Option("--seed", help="Draws the random moments.")] = 9,
    tree: Annotated[
        Path, typer.Option("--tree", help="The agent's working directory; every run gets a copy of it.")
    ] = Path(),
    limit: Annotated[
        float, typer.Option("--limit", help="Seconds that a run may take without faults.")
    ] = 30.0,
    store: Annotated[
        str, typer.Option("--store", help="A server for scratch stores, which are left there.")
    ] = "sqlite:",
    answer: Annotated[
        str | None, typer.Option("--answer", metavar="JSON", help="The answer to every question.")
    ] = None,
    signal: Annotated[
        list[str] | None, typer.Option("--signal", metavar="NAME=JSON", help="A signal, once in each run.")
    ] = None,
    may_fail: Annotated[
        bool, typer.Option("--may-fail", help="Its right end is a failure; nl.Permanent needs no such word.")
    ] = False,
    complete: Annotated[
        bool, typer.Option("--complete", help="Exit 1, too, when a kind of fault was left out.")
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write the report to this page, too.")] = None,
    as_json: AsJson = False,
) -> None:
    """Kill your own agent at every step, in every way, and see what is not crash-safe in it.

    It is really run, many times, on scratch stores: point it at a test double of the world.
    Exit 0 all targets met, 1 one is missed or something is to be mended, 2 wrong call.
    """
    from ninelives.cli.commands import chaos as command

    command.chaos(
        target,
        args or [],
        named=arg or [],
        kills=kills,
        seconds=seconds,
        at=at,
        seed=seed,
        tree=tree,
        limit_seconds=limit,
        store=store,
        answer=answer,
        signals=signal or [],
        html=html,
        as_json=as_json,
        may_fail=may_fail,
        complete=complete,
    )


@app.command()
def doctor(store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Prove that the store is writable and durable. Exit 0 fit, 1 a warning, 4 do not work on it."""
    from ninelives.cli.commands import doctor as command

    command.doctor(store, as_json)


commands_people.register(app)
app.add_typer(upkeep.app, name="store")


def main() -> None:
    """Run the command; our errors become one line each and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app()
    except StoreError as error:
        _end(error, EXIT_STORE)
    except UsageError as error:
        _end(error, EXIT_USAGE)
    except NineLivesError as error:
        _end(error, EXIT_FAILED)


def _end(error: NineLivesError, code: int) -> None:
    from ninelives.cli.output import say

    say(f"{type(error).__name__}: {error}")
    sys.exit(code)
