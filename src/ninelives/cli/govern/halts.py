"""`ninelives halt`, `unhalt`, `halts`: stop agents at once, in all workers, and let them go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ninelives.cli.options import AsJson, Url
from ninelives.stores.open import DEFAULT_URL

By = Annotated[str | None, typer.Option("--by", help="Your name, stored with the halt; default: the login.")]
COLUMNS = ("id", "halts", "reason", "by", "since", "until", "kill")


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    for command in (halt, unhalt, halts):
        app.command()(command)


def halt(
    reason: Annotated[str, typer.Option("--reason", help="Why; people and runs are shown it.")],
    everything: Annotated[bool, typer.Option("--all", help="Halt everything.")] = False,
    agent: Annotated[str | None, typer.Option("--agent", help="Halt runs of this agent.")] = None,
    action: Annotated[str | None, typer.Option("--action", help="Halt calls of this step.")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Halt runs with this label.")
    ] = None,
    run: Annotated[str | None, typer.Option("--run", help="Halt this run.")] = None,
    kill: Annotated[
        bool,
        typer.Option("--kill", help="Also end, with SIGKILL, the worker processes that execute halted runs."),
    ] = False,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME|DURATION", help="When it ends: 30m, 2h, 2027-01-31T10:00Z."),
    ] = None,
    by: By = None,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Halt agents, actions or runs, in all workers, now.

    With several options, what fits all of them. Halted runs wait; none fails.
    No action that must not be repeated begins once this command has printed the halt's id.
    """
    from ninelives.cli.commands.ps import label_of
    from ninelives.cli.options import command, opened
    from ninelives.cli.output import emit, emit_json, say
    from ninelives.governance.halt_changes import Selectors
    from ninelives.governance.halt_changes import halt as declare
    from ninelives.runtime.inbox import login
    from ninelives.views.escape import shown

    chosen = Selectors(
        agent=agent,
        action=action,
        run=run,
        labels=dict(label_of(one) for one in label or []),
        everything=everything,
    )
    with opened(store) as open_store:
        made = declare(open_store, chosen, reason=reason, by=by or login(), until=until, kills=kill)
        seen = _is_seen(open_store, chosen)
    if as_json:
        emit_json(made)
        return
    emit(shown(made.id))
    say(f"halted: {made.what}; to let it go on: {command(['unhalt', made.id], store)}")
    if not seen and (action or label):
        say("note: no unfinished run fits it now; is the name spelled right?")
    elif not seen:
        say("note: no unfinished run fits it now; it holds those that come")


def unhalt(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="The halts' ids.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Lift all halts.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why, stored with the halt.")] = "",
    by: By = None,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Lift halts: what they held goes on where it was."""
    from ninelives.cli.options import opened
    from ninelives.cli.output import emit, emit_json, say
    from ninelives.governance.halt_changes import unhalt as lift
    from ninelives.runtime.inbox import login
    from ninelives.views.escape import shown

    with opened(store) as open_store:
        lifted = lift(open_store, ids or [], everything=everything, by=by or login(), reason=reason)
    if as_json:
        emit_json(lifted)
        return
    for one in lifted:
        emit(shown(f"lifted {one.id}: {one.what}"))
    if not lifted:
        say("no halts were in force")


def halts(
    every: Annotated[bool, typer.Option("--all", help="Also the last ones that are over.")] = False,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List the halts that are in force."""
    from ninelives.cli.options import opened
    from ninelives.cli.output import emit_json, emit_table, say
    from ninelives.governance.halts import read_list

    with opened(store) as open_store:
        known, _ = read_list(open_store)
        now_ms = open_store.now_ms()
    found = [one for one in known.halts if not one.is_over(now_ms)]
    if as_json:
        emit_json({"halts": found, "lifted": known.lifted} if every else {"halts": found})
        return
    rows = [_row(one) for one in found]
    if every:
        rows += [_row(one.halt, f"lifted {_at(one.at_ms)} by {one.by or 'its time'}") for one in known.lifted]
    if rows:
        emit_table(COLUMNS, rows)
    else:
        say("no halts are in force")


def _row(one: Any, end: str = "") -> Sequence[str]:
    until = end or ("" if one.until_ms is None else _at(one.until_ms))
    return (one.id, one.what, one.reason, one.by, _at(one.at_ms), until, "yes" if one.kills else "")


def _at(when_ms: int) -> str:
    from ninelives.cli.output import when_text
    from ninelives.core.clock import moment

    return when_text(moment(when_ms))


def _is_seen(store: Any, chosen: Any) -> bool:
    """Return whether an unfinished run fits; of the steps that a run may still call, nothing is known."""
    from ninelives.core.model.run import RunQuery, State

    unfinished = tuple(state for state in State if not state.is_final)
    query = RunQuery(states=unfinished, agent=chosen.agent, labels=dict(chosen.labels), limit=1)
    return bool(chosen.run) or bool(store.list_runs(query))
