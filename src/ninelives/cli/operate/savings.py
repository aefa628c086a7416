"""`ninelives savings`: what recoveries saved, what crashes cost, as a table, JSON, and a plot."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ninelives.chaos.report.plots import WIDTH, plain
from ninelives.cli.options import age_ms, opened
from ninelives.cli.output import emit, emit_table, say
from ninelives.core.clock import moment
from ninelives.core.errors import UsageError
from ninelives.governance.budgets.prices import price_list
from ninelives.ops.spending.savings import Day, SavingsReport, read_savings
from ninelives.views.counted import counted

_HIGH, _BASE = 200, 170


def savings(
    url: str,
    since: str,
    agent: str | None,
    *,
    manual_minutes: float | None,
    minute_price: float | None,
    plot: Path | None,
    prices: str | None,
    as_json: bool,
) -> None:
    """Print what was saved since an age."""
    if minute_price is not None and manual_minutes is None:
        raise UsageError(
            "--minute-price needs --manual-minutes",
            remedy="State how many minutes a person needs to recover one run by hand",
        )
    price = price_list(prices)
    with opened(url) as store:
        found = read_savings(
            store,
            since_ms=store.read_clock() - age_ms(since),
            agent=agent,
            price=price,
            manual_minutes=manual_minutes,
            minute_price=minute_price,
        )
    if plot is not None:
        try:
            plot.write_text(drawn(found.days), encoding="utf-8")
        except OSError as error:
            remedy = "Name another file with --plot"
            raise UsageError(f"{plot} cannot be written: {error.strerror}", remedy=remedy) from error
    if as_json:
        emit(msgspec.json.encode(found).decode())
        return
    emit_table(("since " + since, "how much"), _rows(found))
    if found.unpriced_tokens and price is None:
        say("tokens only: install 'ninelives[prices]' to see what they cost")
    elif found.unpriced_tokens:
        say(f"{found.unpriced_tokens:,} tokens have no price: their model is not known, or has none")


def _rows(found: SavingsReport) -> list[tuple[str, str]]:
    rows = [
        ("recoveries", f"{found.recoveries:,} of {counted(found.runs, 'run')}"),
        ("steps not repeated", f"{found.steps:,} ({found.step_seconds:,.1f} s)"),
        ("model calls not paid again", f"{found.decisions:,} ({found.tokens:,} tokens)"),
    ]
    for one in found.models:
        cost = f", ${one.price:,.4f}" if one.price is not None else ""
        tokens = f"{one.tokens_in:,} tokens in, {one.tokens_out:,} out"
        rows.append((f"  {one.model or 'model not named'}", f"{one.decisions:,} calls, {tokens}{cost}"))
    if found.money is not None:
        rows.append(("money for tokens", f"${found.money:,.4f}"))
    if found.person_hours is not None:
        cost = f", {found.person_money:,.2f} in your currency" if found.person_money is not None else ""
        rows.append(("recovery by hand, as you stated", f"{found.person_hours:,.1f} hours{cost}"))
    settled = found.settled
    redone = ", ".join(f"{number:,} {kind}" for kind, number in found.redone.items())
    return [
        *rows,
        ("actions in doubt, found done and not repeated", f"{settled.not_repeated:,}"),
        ("actions in doubt, found not done and started again", f"{settled.started_again:,}"),
        ("actions in doubt, put before a person", f"{settled.people:,}"),
        ("cost: steps begun again", redone or "0"),
        ("cost: time that runs stood still", f"{found.lost_seconds:,.1f} s"),
        ("cost: bytes on disk, all runs", f"{found.disk_bytes:,}"),
    ]


def drawn(days: tuple[Day, ...]) -> str:
    """Draw the steps that each day did not repeat, as an SVG of its own."""
    most = max((day.steps for day in days), default=0) or 1
    wide = WIDTH / max(1, len(days))
    parts = [
        f'<text x="0" y="16" font-size="14">steps not repeated per day (most: {most:,})</text>',
        f'<line x1="0" x2="{WIDTH}" y1="{_BASE}" y2="{_BASE}" stroke="#888"/>',
    ]
    for number, day in enumerate(days):
        tall = day.steps / most * (_BASE - 30)
        when = moment(day.at_ms).strftime("%Y-%m-%d")
        title = (
            f"{when}: {counted(day.steps, 'step')}, {counted(day.tokens, 'token')}, "
            f"{counted(day.recoveries, 'recovery', 'recoveries')}"
        )
        parts.append(
            f'<rect x="{number * wide + 1:.1f}" y="{_BASE - tall:.1f}" width="{max(1.0, wide - 2):.1f}" '
            f'height="{tall:.1f}" fill="#3b7dd8"><title>{plain(title)}</title></rect>'
        )
        if number in (0, len(days) - 1):
            anchor = "start" if number == 0 else "end"
            at = 0 if number == 0 else WIDTH
            parts.append(f'<text x="{at}" y="190" font-size="12" text-anchor="{anchor}">{when}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {_HIGH}" role="img" '
        f'aria-label="steps not repeated per day" font-family="sans-serif">{"".join(parts)}</svg>\n'
    )
