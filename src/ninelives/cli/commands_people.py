"""Options of the commands by which people start, answer and control runs.

What each command does is in `cli/commands`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from ninelives.cli.options import AsJson, Named, Target, Url, Words
from ninelives.core.errors import UsageError
from ninelives.stores.open import DEFAULT_URL

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
ItemId = Annotated[
    str, typer.Argument(metavar="ID", help="The item's id, or the id of a run with one open item.")
]
SomeRun = Annotated[str | None, typer.Argument(metavar="[RUN]", help="The run's id; or choose by options.")]
OfAgent = Annotated[str | None, typer.Option("--agent", help="All runs of this agent.")]
WithLabel = Annotated[
    list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="All runs with this label.")
]
InState = Annotated[list[str] | None, typer.Option("--status", help="All runs with this status.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="1h", help="Runs that changed or ended within this age.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for a confirmation.")]
By = Annotated[
    str | None, typer.Option("--by", help="Your name, stored with the answer; default: the login.")
]
Note = Annotated[str, typer.Option("--note", help="Comment, stored with the answer.")]
Sign = Annotated[bool, typer.Option("--sign", help="Sign the answer with your SSH key, by ssh-keygen.")]
SshKey = Annotated[
    str | None,
    typer.Option(
        "--key", metavar="FILE", help="The key; a .pub file takes it from the agent. Default: id_ed25519."
    ),
]
Valid = Annotated[str, typer.Option("--valid", metavar="1d", help="How long the signature counts, from now.")]
PrintRequest = Annotated[
    bool, typer.Option("--print-request", help="Print the text to sign elsewhere, and answer nothing yet.")
]
SignatureFile = Annotated[
    str | None, typer.Option("--signature", metavar="FILE", help="The signature that was made elsewhere.")
]
RequestFile = Annotated[
    str | None,
    typer.Option("--request", metavar="FILE", help="What it signs; default: the same name without .sig."),
]

ANSWERS = {
    "approve": ("approved", "Approve exactly what an item shows."),
    "deny": (
        "denied",
        "Deny what an item shows.\n\nThe action is not executed, and the agent gets nl.Denied with the note.",
    ),
}
"""By command: the answer, and the help."""
CONTROLS = {
    "cancel": "Cancel a run, or all unfinished runs that fit the options.",
    "pause": "Pause a run, or many.\n\nNo worker takes them until they are resumed.",
    "resume": "Let a paused run continue, or many.",
    "retry": "Resume a failed run at its failed step, or many.",
}
"""By command, which is also the control: the help."""


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    for command in (start, watch, inbox, resolve, signal, fork):
        app.command()(command)
    for name, (says, text) in ANSWERS.items():
        app.command(name, help=text)(_answering(says))
    for action, text in CONTROLS.items():
        app.command(action, help=text)(_controlling(action))


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
    """List what waits for a person.

    Approvals, questions, actions in doubt, escalated runs.
    """
    from ninelives.cli.commands import inbox as command

    command.inbox(store, run=run, answered=every, limit=limit, as_json=as_json)


def _answering(says: str) -> Callable[..., None]:
    """Return the command that answers an item so."""

    def answer(
        item: ItemId,
        by: By = None,
        note: Note = "",
        sign: Sign = False,
        key: SshKey = None,
        valid: Valid = "1d",
        print_request: PrintRequest = False,
        signature: SignatureFile = None,
        request: RequestFile = None,
        store: Url = DEFAULT_URL,
        as_json: AsJson = False,
    ) -> None:
        if any((sign, key, print_request, signature, request)):
            from ninelives.cli.govern import signed_answer as signed
            from ninelives.core.journal.answers import Says

            signing = signed.Signing(sign, key, valid, print_request, signature, request)
            signing.check()
            signed.answer(store, item, Says(says), signing, note=note, by=by, as_json=as_json)
            return
        from ninelives.cli.commands import inbox as command

        command.answer(store, item, says, note=note, by=by, as_json=as_json)

    return answer


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
    """Answer a question, settle a doubt, or retry or fail a run.

    A doubt is an action of which it is not known whether it happened; the run is an escalated one.
    """
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


def _controlling(action: str) -> Callable[..., None]:
    """Return the command that requests `cancel`, `pause`, `resume` or `retry` of one run, or of many."""

    def control(
        run: SomeRun = None,
        agent: OfAgent = None,
        label: WithLabel = None,
        status: InState = None,
        since: Since = None,
        yes: Yes = False,
        store: Url = DEFAULT_URL,
        as_json: AsJson = False,
    ) -> None:
        if run is not None:
            if any(one is not None for one in (agent, label, status, since)):
                raise UsageError("a run and a choice of runs", remedy="Give the run's id, or the options")
            from ninelives.cli.commands import control as command

            command.control(store, run, action, as_json=as_json)
            return
        from ninelives.cli.operate import bulk

        bulk.bulk(
            store,
            action,
            agent=agent,
            labels=label or [],
            statuses=status or [],
            since=since,
            yes=yes,
            as_json=as_json,
        )

    return control


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
    """Create a run from the records of another, up to a step.

    It continues from there.
    """
    from ninelives.cli.commands import control as command

    command.fork(store, run, at, result, id=id, after=after, as_json=as_json)


def watch(run: RunId, store: Url = DEFAULT_URL) -> None:
    """Follow a run until it ends.

    Its steps, what it logs, what it waits for.
    Exit 0 completed, 1 failed or cancelled.
    """
    from ninelives.cli.commands import watch as command

    command.watch(store, run)
