"""Options of the commands by which people start, answer and control runs.

What each command does is in `cli/commands`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ninelives.cli.options import AsJson, Named, Target, Url, Words
from ninelives.stores.open import DEFAULT_URL

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
ItemId = Annotated[
    str, typer.Argument(metavar="ID", help="The item's id, or the id of a run with one open item.")
]
By = Annotated[
    str | None, typer.Option("--by", help="Your name, stored with the answer; default: the login.")
]
Note = Annotated[str, typer.Option("--note", help="Comment, stored with the answer.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    for command in (start, watch, inbox, approve, deny, resolve, signal, cancel, pause, resume, retry, fork):
        app.command()(command)


def start(
    target: Target,
    args: Words = None,
    arg: Named = None,
    id: Annotated[str | None, typer.Option("--id", help="The run's id; a known id starts nothing.")] = None,
    delay: Annotated[float, typer.Option("--delay", min=0, help="Seconds before it may start.")] = 0,
    priority: Annotated[int, typer.Option("--priority", help="Higher priorities are claimed first.")] = 0,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="A label to find it by.")
    ] = None,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Start a run and print its id; a worker executes it. Exit 3 if a known run waits for a person."""
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
    every: Annotated[bool, typer.Option("--all", help="Also items that were answered or closed.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Show at most N items.")] = 100,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List what waits for a person: approvals, questions, actions in doubt, escalated runs."""
    from ninelives.cli.commands import inbox as command

    command.inbox(store, run=run, answered=every, limit=limit, as_json=as_json)


def approve(
    item: ItemId, by: By = None, note: Note = "", store: Url = DEFAULT_URL, as_json: AsJson = False
) -> None:
    """Approve exactly what an item shows."""
    from ninelives.cli.commands import inbox as command

    command.answer(store, item, "approved", note=note, by=by, as_json=as_json)


def deny(
    item: ItemId, by: By = None, note: Note = "", store: Url = DEFAULT_URL, as_json: AsJson = False
) -> None:
    """Deny what an item shows: the action is not executed, and the agent gets nl.Denied with the note."""
    from ninelives.cli.commands import inbox as command

    command.answer(store, item, "denied", note=note, by=by, as_json=as_json)


def resolve(
    item: ItemId,
    happened: Annotated[bool, typer.Option("--happened", help="The action in doubt did happen.")] = False,
    result: Annotated[
        str | None, typer.Option("--result", metavar="JSON", help="Its result; goes with --happened.")
    ] = None,
    not_happened: Annotated[
        bool, typer.Option("--not-happened", help="It did not happen, and no longer can.")
    ] = False,
    answer: Annotated[
        str | None, typer.Option("--answer", metavar="JSON", help="The answer to a question.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="The cause is fixed: let the run continue.")] = False,
    fail: Annotated[bool, typer.Option("--fail", help="End the run as failed.")] = False,
    by: By = None,
    note: Note = "",
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Answer a question, settle an action in doubt, or retry or fail an escalated run."""
    from ninelives.cli.commands import inbox as command

    says, value = command.resolution(
        happened=happened, not_happened=not_happened, answer=answer, retry=retry, fail=fail, result=result
    )
    command.answer(store, item, says, value=value, note=note, by=by, as_json=as_json)


def signal(
    run: RunId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name under which the run receives it.")],
    value: Annotated[
        str, typer.Argument(metavar="[JSON]", help="Its value, as JSON or plain text.")
    ] = "null",
    id: Annotated[str | None, typer.Option("--id", help="Sending again with this id has no effect.")] = None,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Send a signal to a run; it is kept until the run receives it."""
    from ninelives.cli.commands import control as command

    command.signal(store, run, name, value, id=id, as_json=as_json)


def cancel(run: RunId, store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Cancel a run."""
    _control(store, run, "cancel", as_json)


def pause(run: RunId, store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Pause a run: no worker takes it until it is resumed."""
    _control(store, run, "pause", as_json)


def resume(run: RunId, store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Let a paused run continue."""
    _control(store, run, "resume", as_json)


def retry(run: RunId, store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Resume a failed run at its failed step."""
    _control(store, run, "retry", as_json)


def fork(
    run: RunId,
    at: Annotated[
        str, typer.Option("--at", metavar="STEP", help="The step as `show` names it, or its record's number.")
    ],
    result: Annotated[
        str | None,
        typer.Option("--result", metavar="JSON", help="Its result in the fork; default: execute it again."),
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="The fork's id; a known id returns that fork.")
    ] = None,
    after: Annotated[
        str,
        typer.Option("--after", help="Non-resumable actions done after the step: ask, reuse, repeat."),
    ] = "ask",
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Create a run that shares the records of another up to a step, and continues from there."""
    from ninelives.cli.commands import control as command

    command.fork(store, run, at, result, id=id, after=after, as_json=as_json)


def watch(run: RunId, store: Url = DEFAULT_URL) -> None:
    """Follow a run until it ends: its steps, what it logs, what it waits for.

    Exit 0 completed, 1 failed or cancelled.
    """
    from ninelives.cli.commands import watch as command

    command.watch(store, run)


def _control(store: str, run: str, action: str, as_json: bool) -> None:
    from ninelives.cli.commands import control as command

    command.control(store, run, action, as_json=as_json)
