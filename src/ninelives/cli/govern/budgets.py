"""`ninelives budget show`, `set`, `raise`: what was spent, and more (or less) for one account."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from ninelives.cli.options import AsJson, Url
from ninelives.stores.open import DEFAULT_URL

app = typer.Typer(help="Show what budgets have spent, and change limits.", no_args_is_help=True)
By = Annotated[str | None, typer.Option("--by", help="Your name, kept with the change; default: the login.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, kept with the change.")]
Name = Annotated[str, typer.Argument(metavar="BUDGET", help="The budget's name.")]
Value = Annotated[
    str | None,
    typer.Argument(
        metavar="[OF]", help="Whose: the run, agent, action or label's value; left out for scope store."
    ),
]
Usd = Annotated[float | None, typer.Option("--usd", help="Dollars.")]
Tokens = Annotated[int | None, typer.Option("--tokens", help="Tokens.")]
Actions = Annotated[int | None, typer.Option("--actions", help="Calls of actions.")]
Decisions = Annotated[int | None, typer.Option("--decisions", help="Calls of decisions.")]
Seconds = Annotated[float | None, typer.Option("--seconds", help="Seconds.")]
COLUMNS = ("budget", "of", "meter", "spent", "reserved", "limit", "used", "over", "until", "notes")


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[BUDGET]", help="Only this budget, by its name.")
    ] = None,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show what was spent and is reserved, in the windows of now."""
    from ninelives.cli.options import opened
    from ninelives.cli.output import emit_json, emit_table, say
    from ninelives.core.errors import UsageError
    from ninelives.governance.budgets.publication import published
    from ninelives.governance.budgets.standings import standings

    with opened(store) as open_store:
        declared = [one for one in published(open_store) if name in (None, one.name)]
        found = list(standings(open_store, open_store.read_clock(), name))
    if name is not None and not declared:
        raise UsageError(
            f"no process has declared a budget {name!r} in this store",
            remedy="A worker with a policy declares them: ninelives up --policy FILE",
        )
    if as_json:
        emit_json({"budgets": declared, "accounts": found})
    elif found:
        emit_table(COLUMNS, [row for one in found for row in _rows(one)])
    else:
        what = "nothing was spent in the windows of now" if declared else "no budgets are declared"
        say(what)


def _changing(*, raises: bool) -> Callable[..., None]:
    """Return the command that sets the limit of an account, or raises it."""

    def change(
        name: Name,
        value: Value = None,
        usd: Usd = None,
        tokens: Tokens = None,
        actions: Actions = None,
        decisions: Decisions = None,
        seconds: Seconds = None,
        reason: Reason = "",
        by: By = None,
        store: Url = DEFAULT_URL,
        as_json: AsJson = False,
    ) -> None:
        amounts = _amounts(usd, tokens, actions, decisions, seconds)
        _change(store, name, value, amounts, raises=raises, reason=reason, by=by, as_json=as_json)

    return change


app.command(
    "set",
    help="""Set the limit of one account, for its window of now.

    It wins over the policy's, for this account and window only. Needs --reason.
    """,
)(_changing(raises=False))
app.command(
    "raise",
    help="""Raise the limit of one account by so much, for its window of now.

    Runs that wait for it go on. Needs --reason.
    """,
)(_changing(raises=True))


def _amounts(*given: float | None) -> dict[str, int]:
    from ninelives.core.governance.costs import ACTIONS, DECISIONS, SECONDS, TOKENS, USD, whole

    meters = (USD, TOKENS, ACTIONS, DECISIONS, SECONDS)
    return {
        meter: whole(meter, amount) for meter, amount in zip(meters, given, strict=True) if amount is not None
    }


def _change(
    url: str,
    name: str,
    value: str | None,
    amounts: dict[str, int],
    *,
    raises: bool,
    reason: str,
    by: str | None,
    as_json: bool,
) -> None:
    from ninelives.cli.options import opened
    from ninelives.cli.output import emit_json, emit_table, say
    from ninelives.governance.audit_log.entries import append
    from ninelives.governance.budgets.changes import change
    from ninelives.runtime.inbox import login
    from ninelives.views.counted import counted

    with opened(url) as store:
        changed = change(
            store,
            name,
            value,
            amounts,
            raises=raises,
            by=by or login(),
            reason=reason,
            log=lambda named, facts: append(store, "budget changed", id=named, **facts),
        )
    if as_json:
        emit_json(changed)
        return
    emit_table(COLUMNS, _rows(changed.account))
    one = changed.account
    if value and not changed.woken and not any(meter.spent or meter.reserved for meter in one.meters):
        say(f"note: nothing {one.whose} has used this budget yet; is {value!r} spelled right?")
    if changed.woken:
        say(f"{counted(len(changed.woken), 'run')} waited for it and will ask again")


def _rows(one: Any) -> list[Sequence[str]]:
    from ninelives.cli.output import when_text
    from ninelives.core.clock import moment
    from ninelives.core.governance.costs import shown
    from ninelives.views.counted import counted

    until = "" if one.ends_ms is None else when_text(moment(one.ends_ms))
    notes = [counted(one.unpriced, "call without a price", "calls without a price")] if one.unpriced else []
    notes += [f"{one.presumed} presumed"] if one.presumed else []
    return [
        (
            one.budget,
            one.whose.removeprefix("of "),
            meter.meter,
            shown(meter.meter, meter.spent),
            shown(meter.meter, meter.reserved) if meter.reserved else "",
            shown(meter.meter, meter.limit) + (" (changed)" if meter.is_changed else ""),
            f"{meter.ratio:.0%}",
            one.on,
            until,
            ", ".join(notes),
        )
        for meter in one.meters
    ]
