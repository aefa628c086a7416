"""Options of the commands for operators: is it healthy, what happened, where is its data.

What each command does is in `cli/operate`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ninelives.cli.options import AsJson, Url
from ninelives.stores.open import DEFAULT_URL


def status(
    watch: Annotated[
        float | None, typer.Option("--watch", min=0.1, help="Print it again every so many seconds.")
    ] = None,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show whether all is well, and if not, why.

    What is stuck, fails, is retried and why, what waits for people.
    Exit 0 healthy, 1 not healthy, 2 wrong usage, 4 store unusable.
    """
    from ninelives.cli.operate import status as command

    command.status(store, watch=watch, as_json=as_json)


def metrics(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0: any free one.")] = 9464,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    store: Url = DEFAULT_URL,
) -> None:
    """Serve the store's metrics for Prometheus.

    At /metrics; also /livez and /readyz.
    It keeps nothing: it may be killed, and several may run. Exit 2 wrong usage, or there is no such store.
    """
    from ninelives.cli.operate import metrics as command

    command.serve(store, host, port)


def alerts(
    kind: Annotated[
        str,
        typer.Option("--kind", help="prometheus: a rule file; operator: a PrometheusRule for Kubernetes."),
    ] = "prometheus",
    runbook: Annotated[
        str, typer.Option("--runbook", metavar="URL", help="The page that each alert links to.")
    ] = "docs/runbook.md",
) -> None:
    """Print the alert rules for Prometheus."""
    from ninelives.cli.operate import metrics as command

    command.alerts(kind, runbook)


def grafana() -> None:
    """Print the dashboard for Grafana, as JSON."""
    from ninelives.cli.operate import metrics as command

    command.grafana()


def notify(
    config: Annotated[Path, typer.Option("--config", help="The TOML file that names the channels.")],
    once: Annotated[
        bool, typer.Option("--once", help="Search once, try each notice that is due once, and exit.")
    ] = False,
    test: Annotated[
        bool, typer.Option("--test", help="Send one test notice to each channel, and exit.")
    ] = False,
    since: Annotated[
        str,
        typer.Option(
            "--since", metavar="AGE", help="To channels that are new, also failures up to this age (12h, 7d)."
        ),
    ] = "",
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Report to people what waits for them, and what went wrong.

    By webhook, Slack or mail: open items, failed runs, faults and outages.
    Runs until stopped. It may be killed at any moment, and several may run: each notice is sent by one.
    Exit 1: with --once, some notices still wait; with --test, some channel did not take the test.
    """
    from ninelives.cli.operate import notify as command

    command.notify(store, config, once=once, test=test, since=since, as_json=as_json)


Prices = Annotated[
    str | None,
    typer.Option(
        "--prices", envvar="NINELIVES_PRICES", metavar="FILE", help="Your own prices, or MODULE:FUNCTION."
    ),
]


def usage(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Only this run, and all that it has spawned.")
    ] = None,
    since: Annotated[str, typer.Option("--since", help="Count from this age on.")] = "30d",
    by: Annotated[
        str, typer.Option("--by", help="agent, day, model, step, run, tree, or label:NAME.")
    ] = "agent",
    agent: Annotated[str | None, typer.Option("--agent", help="Only runs of this agent.")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Only runs with this label.")
    ] = None,
    prices: Prices = None,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show what models were used for: calls, tokens, and what they cost.

    By agent, day, model, step, run, tree of runs or label. Prices are those of now: yours, or the list of
    `pip install 'ninelives[prices]'`.
    """
    from ninelives.cli.operate import usage as command

    command.usage(store, run, since, by, agent=agent, labels=label or (), prices=prices, as_json=as_json)


def savings(
    since: Annotated[str, typer.Option("--since", help="Count from this age on.")] = "30d",
    agent: Annotated[str | None, typer.Option("--agent", help="Only runs of this agent.")] = None,
    manual_minutes: Annotated[
        float | None,
        typer.Option("--manual-minutes", min=0, help="Minutes that a person needs to recover a run by hand."),
    ] = None,
    minute_price: Annotated[
        float | None, typer.Option("--minute-price", min=0, help="What such a minute costs.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.svg", help="Also draw it, day by day.")
    ] = None,
    prices: Prices = None,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show what recoveries saved, and what crashes cost.

    In steps, model calls, tokens, money and time.
    Compared with beginning again after each death. Prices need `pip install 'ninelives[prices]'`.
    """
    from ninelives.cli.operate import savings as command

    command.savings(
        store,
        since,
        agent,
        manual_minutes=manual_minutes,
        minute_price=minute_price,
        plot=plot,
        prices=prices,
        as_json=as_json,
    )


RunIds = Annotated[list[str] | None, typer.Argument(metavar="[RUN]...", help="The runs' ids.")]


def export_(
    to: Annotated[Path, typer.Option(help="The file to write; it must not exist.")],
    runs: RunIds = None,
    everything: Annotated[bool, typer.Option("--all", help="All runs.")] = False,
    status: Annotated[str, typer.Option(help="Only runs with this status.")] = "",
    since: Annotated[str, typer.Option(help="Only runs created within this age, such as 7d.")] = "",
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Copy runs into a file that any other store can import. Unfinished ones go on here."""
    from ninelives.cli.operate import transfer

    transfer.write(store, runs or (), to, everything=everything, status=status, since=since, as_json=as_json)


def import_(
    file: Annotated[Path, typer.Argument(help="A file that `export` wrote.")],
    check: Annotated[bool, typer.Option("--check", help="Only read and check the file.")] = False,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Copy the runs of a file into a store. Unfinished ones are paused; open actions go to the inbox.

    Exit 1 if the store refuses a run: it has another history there, or a key is used.
    """
    from ninelives.cli.operate import transfer

    transfer.read(store, file, only_check=check, as_json=as_json)


def move(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="The runs' ids.")],
    to: Annotated[str, typer.Option(help="The URL of the store to move them to.")] = "",
    back: Annotated[bool, typer.Option("--back", help="Call back what has not arrived there.")] = False,
    gone: Annotated[
        bool,
        typer.Option(
            "--never-arrived",
            help="With --back, if the other store is gone for good: you know that the runs never arrived"
            " there, and that no `move` is still under way. If you are wrong, they run twice.",
        ),
    ] = False,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Move unfinished runs to another store, where they go on.

    Their children go with them.
    Killed at any point, it leaves no run that could run in both stores. Run it again to finish it.
    """
    from ninelives.cli.operate import transfer

    transfer.move(store, runs, to, back=back, gone=gone, as_json=as_json)


COMMANDS: tuple[Callable[..., Any], ...] = (
    status,
    metrics,
    alerts,
    grafana,
    notify,
    usage,
    savings,
    export_,
    import_,
    move,
)


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    for command in COMMANDS:
        app.command(command.__name__.strip("_"))(command)
