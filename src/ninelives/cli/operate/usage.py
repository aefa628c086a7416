"""`ninelives usage`: tokens and money of model calls, as a table or JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ninelives.cli.commands.ps import label_of
from ninelives.cli.options import age_ms, opened
from ninelives.cli.output import bar, emit, emit_table, say
from ninelives.core.errors import UsageError
from ninelives.governance.budgets.prices import price_list
from ninelives.ops.spending.usage import GROUPS, LABEL, GroupUsage, read_usage


def usage(
    url: str,
    run: str | None,
    since: str,
    by: str,
    *,
    agent: str | None,
    labels: Sequence[str],
    prices: str | None,
    as_json: bool,
) -> None:
    """Print what models were used for since an age."""
    if by not in GROUPS and (by == LABEL or not by.startswith(LABEL)):
        raise UsageError(f"--by {by!r}", remedy=f"Use {', '.join(GROUPS)}, or label:NAME")
    price = price_list(prices)
    with opened(url) as store, bar("reading runs", as_json=as_json) as progress:
        found = read_usage(
            store,
            since_ms=store.read_clock() - age_ms(since),
            by=by,
            agent=agent,
            run=run,
            labels=dict(map(label_of, labels)),
            price=price,
            progress=progress,
        )
    if as_json:
        emit(msgspec.json.encode(found).decode())
        return
    if not found.groups:
        say(f"no model call of the last {since} reports tokens")
        return
    columns = (by.removeprefix(LABEL), "calls", "tokens in", "of them cached", "tokens out", "dollars")
    emit_table(columns, [_row(one) for one in (*found.groups, found.total)])
    if found.total.unpriced_tokens and price is None:
        say("tokens only: install 'ninelives[prices]', or give --prices FILE, to see what they cost")
    elif found.total.unpriced_tokens:
        say(f"{found.total.unpriced_tokens:,} tokens have no price: their model is not known, or has none")


def _row(one: GroupUsage) -> tuple[str, ...]:
    dollars = "" if one.usd is None else f"{one.usd:,.4f}"
    return (
        one.name or "not on record",
        f"{one.calls:,}",
        f"{one.tokens_in:,}",
        f"{one.cached:,}",
        f"{one.tokens_out:,}",
        f"{dollars}{' and more' if dollars and one.unpriced_tokens else ''}",
    )
