"""The `ninelives` command: its subcommands, their options, and the exit codes.

Exit codes: 0 done, 1 failed (or the command found faults), 2 wrong usage, 3 waits for a person, 4 store
unusable; 130 and 143 stopped by Ctrl-C or SIGTERM, 141 the reader of the output closed the pipe.

Each command imports what it needs when it is called, so that `--help` is fast.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ninelives import __version__
from ninelives.cli import commands_operate, commands_people
from ninelives.cli.commands import store as upkeep
from ninelives.cli.govern import approvers, audit_log, budgets, halts, policy
from ninelives.cli.help_groups import GroupedCommands
from ninelives.cli.operate import cache
from ninelives.cli.options import (
    EXIT_FAILED,
    EXIT_STORE,
    EXIT_USAGE,
    AsJson,
    Named,
    PolicyFile,
    Target,
    Url,
    Words,
)
from ninelives.core.errors import NineLivesError, StoreError, UsageError
from ninelives.logs.log_format import LogFormat
from ninelives.stores.open import DEFAULT_URL

RunId = Annotated[str, typer.Argument(metavar="ID", help="The run's id.")]

app = typer.Typer(
    name="ninelives",
    cls=GroupedCommands,
    help="A crash-only runtime for AI agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    """Print the version."""
    if version:
        typer.echo(f"ninelives {__version__}")
        raise typer.Exit


@app.command()
def run(
    target: Target,
    args: Words = None,
    arg: Named = None,
    id: Annotated[str | None, typer.Option("--id", help="The run's id; a known id resumes that run.")] = None,
    store: Url = DEFAULT_URL,
    policy: PolicyFile = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Only start it; a worker executes it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start or resume a run, work on it here, and print its result.

    Exit 0 completed, 1 failed or cancelled, 2 wrong usage, 3 waits for a person, 4 store unusable.
    """
    from ninelives.cli.commands import run as command
    from ninelives.cli.commands import start

    if no_wait:
        start.start(target, args or [], named=arg or [], id=id, url=store, as_json=as_json)
    else:
        command.run(target, args or [], named=arg or [], id=id, url=store, as_json=as_json, policy=policy)


Code = Annotated[
    str, typer.Argument(metavar="FILE_OR_MODULE", help="The file or module that declares the agents.")
]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, help="Runs at once in each process.")]
Lease = Annotated[
    float, typer.Option("--lease", help="Seconds until another worker takes over the runs of a lost machine.")
]
Hang = Annotated[
    float,
    typer.Option("--hang", help="Seconds that a worker's event loop may block before the worker is killed."),
]


Limits = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="AGENT=N", help="At most N runs of this agent at once in each process."),
]


Backoff = Annotated[
    float,
    typer.Option("--backoff", min=0, help="Longest pause, in seconds, before a dying worker is restarted."),
]


Log = Annotated[
    LogFormat, typer.Option("--log", help="How the log is written: text, or json: one object per line.")
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
    log: Log = LogFormat.TEXT,
    policy: PolicyFile = None,
) -> None:
    """Work on runs until stopped.

    A supervisor restarts workers that die and kills workers that hang.
    SIGTERM stops it (no run loses a life). SIGHUP restarts the workers with new code, one after the other.
    """
    from ninelives.cli.commands import up as command

    command.keep(target, store, concurrency, limit or [], processes, lease, hang, backoff, log, policy=policy)


@app.command()
def up(  # noqa: PLR0917 (each is an option)
    target: Code,
    store: Url = DEFAULT_URL,
    concurrency: Concurrency = 100,
    limit: Limits = None,
    processes: Annotated[
        int | None,
        typer.Option("--processes", min=1, max=1000, help="Worker processes; default: one per CPU."),
    ] = None,
    lease: Lease = 10.0,
    hang: Hang = 30.0,
    backoff: Backoff = 5.0,
    log: Log = LogFormat.TEXT,
    policy: PolicyFile = None,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", min=1, max=65535, help="Also serve metrics, as `metrics` does."),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option("--metrics-host", help="The address for --metrics-port.")
    ] = "127.0.0.1",
    audit_every: Annotated[
        str, typer.Option("--audit-every", help="Also audit the store at this interval, such as 24h.")
    ] = "",
    notify: Annotated[
        Path | None,
        typer.Option("--notify", metavar="FILE", help="Also run `notify` with this configuration."),
    ] = None,
    keep: Annotated[
        str, typer.Option("--keep", metavar="AGE", help="Also remove what is older, as `store retain` does.")
    ] = "",
    replicate: Annotated[
        str,
        typer.Option("--replicate", metavar="DEST", help="Also copy the store, as `store replicate` does."),
    ] = "",
) -> None:
    """Work on runs, with one process per CPU and other commands beside.

    It works as `worker` does.
    """
    from ninelives.cli.commands import up as command

    companions = command.companions(
        metrics_port, metrics_host, audit_every, notify=notify, keep=keep, replicate=replicate
    )
    command.keep(
        target,
        store,
        concurrency,
        limit or [],
        processes,
        lease,
        hang,
        backoff,
        log,
        companions,
        policy=policy,
    )


@app.command()
def check(
    target: Code,
    store: Url = DEFAULT_URL,
    limit: Annotated[
        float, typer.Option("--limit", help="Seconds that a run's code may take until its next step.")
    ] = 10.0,
    others: Annotated[
        bool,
        typer.Option(
            "--other-agents",
            help="Accept runs of agents that this code does not declare: other workers have their code.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Replay unfinished runs against new code, executing nothing.

    It lists the runs that do not fit the code.
    A run whose agent this code does not declare does not fit.
    Exit 0 all fit, 1 some do not, 2 wrong usage or code that cannot be loaded, 4 store unusable.
    """
    from ninelives.cli.commands import check as command

    command.check(target, store, limit_seconds=limit, others=others, as_json=as_json)


@app.command()
def ps(
    status: Annotated[
        list[str] | None, typer.Option("--status", help="Only runs with this status; may be repeated.")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Only runs of this agent.")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Only runs with this label.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Show at most N runs.")] = 50,
    after: Annotated[int | None, typer.Option("--after", help="Show the page after this run number.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also runs that have ended.")] = False,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List unfinished runs, and what failed in the last day.

    The newest comes first.
    """
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
    log: Annotated[bool, typer.Option("--log", help="Show only what the run logged with nl.log.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Show the last N records (0: all).")] = 50,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show all that is known of a run.

    Position, pending operations, what it waits for, last error, history.
    """
    from ninelives.cli.commands import show as command

    command.show(store, run, log=log, limit=limit, as_json=as_json)


@app.command()
def recoveries(
    run: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only recoveries of this run.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Show at most N entries.")] = 50,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show the recovery log, newest first.

    What died, what took over, what was replayed or verified.
    """
    from ninelives.cli.commands import recoveries as command

    command.recoveries(store, run, limit=limit, as_json=as_json)


@app.command()
def snapshot(
    run: RunId,
    out: Annotated[Path | None, typer.Option("--out", help="The file to write; it must not exist.")] = None,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Write all that is stored of a run to a file, for debugging."""
    from ninelives.cli.commands import show as command

    command.snapshot(store, run, out, as_json=as_json)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
)
def demo(context: typer.Context) -> None:
    """Watch a support agent survive kill -9.

    `demo --help` shows the options.
    """
    from ninelives.demo import main as show

    sys.exit(show(context.args))


@app.command()
def chaos(  # noqa: PLR0917 (each is an option)
    target: Target,
    args: Words = None,
    arg: Named = None,
    kills: Annotated[int, typer.Option("--kills", min=1, max=10_000, help="Kills at random moments.")] = 20,
    seconds: Annotated[
        float, typer.Option("--seconds", help="Time budget; no fault starts after it.")
    ] = 60.0,
    at: Annotated[
        str,
        typer.Option("--at", metavar="MOMENT", help="every-step, random or FILE:LINE; default: all kinds."),
    ] = "",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random moments.")] = 9,
    tree: Annotated[
        Path, typer.Option("--tree", help="The agent's working directory; every run gets a copy.")
    ] = Path(),
    limit: Annotated[
        float, typer.Option("--limit", help="Seconds that a run may take without faults.")
    ] = 30.0,
    store: Annotated[
        str, typer.Option("--store", help="A server for scratch stores; they are not deleted.")
    ] = "sqlite:",
    answer: Annotated[
        str | None, typer.Option("--answer", metavar="JSON", help="The answer to every question.")
    ] = None,
    signal: Annotated[
        list[str] | None,
        typer.Option("--signal", metavar="NAME=JSON", help="A signal, sent once to each run."),
    ] = None,
    may_fail: Annotated[
        bool, typer.Option("--may-fail", help="The agent is expected to fail (implied by nl.Permanent).")
    ] = False,
    complete: Annotated[
        bool, typer.Option("--complete", help="Also exit 1 when a kind of fault was left out.")
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Also write the report to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Kill your agent everywhere, and report what is not crash-safe.

    It is killed at every step, in every way.
    The agent really runs, many times, on scratch stores: point it at test doubles of what it calls.
    Exit 0 all targets met, 1 a target missed or something to fix, 2 wrong usage.
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
    """Prove that the store is writable and durable. Exit 0 healthy, 1 warnings, 4 unusable."""
    from ninelives.cli.commands import doctor as command

    command.doctor(store, as_json)


commands_people.register(app)
commands_operate.register(app)
halts.register(app)
app.add_typer(policy.app, name="policy")
app.add_typer(upkeep.app, name="store")
app.add_typer(audit_log.app, name="audit")
app.add_typer(approvers.app, name="approvers")
app.add_typer(budgets.app, name="budget")
app.add_typer(cache.app, name="cache")


def main() -> None:
    """Run the command; each of our errors becomes one line on stderr and an exit code."""
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
