"""The commands by which people answer runs and steer them; what each does is in its own room."""

from __future__ import annotations

from typing import Annotated

import typer

from ninelives.cli.options import AsJson, Url
from ninelives.stores.open import DEFAULT_URL

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
ItemId = Annotated[
    str, typer.Argument(metavar="ID", help="The item's id, or its run's when only one item of it waits.")
]
By = Annotated[str | None, typer.Option("--by", help="Who answers; default: who is logged in.")]
Note = Annotated[str, typer.Option("--note", help="A word with it, kept with the answer.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (start, watch, inbox, approve, deny, resolve, signal, cancel, pause, resume, retry, fork):
        app.command()(command)


def start(
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
    id: Annotated[str | None, typer.Option("--id", help="The run's id; a known one starts nothing.")] = None,
    delay: Annotated[float, typer.Option("--delay", min=0, help="Not before so many seconds.")] = 0,
    priority: Annotated[int, typer.Option("--priority", help="Higher ones go first.")] = 0,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="A label to find it by.")
    ] = None,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Start a run and print its id; a worker carries it out. Exit 3 if it is known and waits for a person."""
    from ninelives.cli.commands import start as command

    command.start(
        target,
        args or [],
        named=arg or [],
        id=id,
        url=store,
        delay=delay,
        priority=priority,
        labels=label or [],
        as_json=as_json,
    )


def inbox(
    run: Annotated[str | None, typer.Option("--run", help="Only items of this run.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that were answered or closed.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 100,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List what waits for a person: approvals, questions, what is in doubt, what stands in a run's way."""
    from ninelives.cli.commands import inbox as command

    command.inbox(store, run=run, answered=every, limit=limit, as_json=as_json)


def approve(
    item: ItemId, by: By = None, note: Note = "", store: Url = DEFAULT_URL, as_json: AsJson = False
) -> None:
    """Say yes to exactly what an item shows."""
    from ninelives.cli.commands import inbox as command

    command.answer(store, item, "approved", note=note, by=by, as_json=as_json)


def deny(
    item: ItemId, by: By = None, note: Note = "", store: Url = DEFAULT_URL, as_json: AsJson = False
) -> None:
    """Say no: the action is not carried out, and the agent learns why."""
    from ninelives.cli.commands import inbox as command

    command.answer(store, item, "denied", note=note, by=by, as_json=as_json)


def resolve(
    item: ItemId,
    happened: Annotated[bool, typer.Option("--happened", help="What was in doubt did happen.")] = False,
    result: Annotated[
        str | None, typer.Option("--result", metavar="JSON", help="Its result, with --happened.")
    ] = None,
    not_happened: Annotated[
        bool, typer.Option("--not-happened", help="It did not happen, and no longer can.")
    ] = False,
    answer: Annotated[
        str | None, typer.Option("--answer", metavar="JSON", help="The answer to a question.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="What stood in the way is mended: go on.")] = False,
    fail: Annotated[bool, typer.Option("--fail", help="Give up.")] = False,
    by: By = None,
    note: Note = "",
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Answer a question, settle what is in doubt, or say what becomes of a run that cannot go on."""
    from ninelives.cli.commands import inbox as command

    says, value = command.resolution(
        happened=happened, not_happened=not_happened, answer=answer, retry=retry, fail=fail, result=result
    )
    command.answer(store, item, says, value=value, note=note, by=by, as_json=as_json)


def signal(
    run: RunId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the run receives it by.")],
    value: Annotated[
        str, typer.Argument(metavar="[JSON]", help="Its value, as JSON or plain words.")
    ] = "null",
    id: Annotated[str | None, typer.Option("--id", help="Send it once, however often this is run.")] = None,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Send a run a signal; it is kept until the run receives it."""
    from ninelives.cli.commands import control as command

    command.signal(store, run, name, value, id=id, as_json=as_json)


def cancel(run: RunId, store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Cancel a run."""
    _control(store, run, "cancel", as_json)


def pause(run: RunId, store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Pause a run: no worker takes it until it is resumed."""
    _control(store, run, "pause", as_json)


def resume(run: RunId, store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Let a paused run go on."""
    _control(store, run, "resume", as_json)


def retry(run: RunId, store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Let a failed run go on from its failed step."""
    _control(store, run, "retry", as_json)


def fork(
    run: RunId,
    at: Annotated[
        str, typer.Option("--at", metavar="STEP", help="The step, as `show` names it, or its number.")
    ],
    result: Annotated[
        str | None,
        typer.Option("--result", metavar="JSON", help="Its result in the fork; else it is done anew."),
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="The fork's id; asking again gives that fork.")
    ] = None,
    after: Annotated[
        str,
        typer.Option("--after", help="What becomes of unrepeatable actions done after: ask, reuse, repeat."),
    ] = "ask",
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Make a new run that shares the records of another up to a step, and goes on from there."""
    from ninelives.cli.commands import control as command

    command.fork(store, run, at, result, id=id, after=after, as_json=as_json)


def watch(run: RunId, store: Url = DEFAULT_URL) -> None:
    """Follow a run until it ends: its steps, what it logs, what it waits for.

    Exit 0 completed, 1 failed or cancelled.
    """
    from ninelives.cli.commands import watch as command

    command.watch(store, run)


def _control(store: str, run: str, asked: str, as_json: bool) -> None:
    from ninelives.cli.commands import control as command

    command.control(store, run, asked, as_json=as_json)
