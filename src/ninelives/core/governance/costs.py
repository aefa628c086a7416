"""Costs: what a call is expected to cost, and meters in whole numbers.

Money is counted in micro-dollars and time in milliseconds, so that sums are exact. What does not come out
even is rounded up: a budget is never passed by rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any

from msgspec import Struct

from ninelives.core.errors import UsageError
from ninelives.core.governance.accounts import AMOUNT_LIMIT
from ninelives.core.values.token_usage import Usage

USD, TOKENS, ACTIONS, DECISIONS, SECONDS = METERS = ("usd", "tokens", "actions", "decisions", "seconds")
"""The meters that budgets have limits for."""
_SCALES = {USD: 1_000_000, SECONDS: 1_000}


class Cost(Struct, frozen=True, kw_only=True):
    """What a call may cost at most, as far as it is declared: dollars, tokens, seconds."""

    usd: float | Decimal | None = None
    tokens: int | None = None
    seconds: float | None = None

    def amounts(self) -> dict[str, int]:
        """Return the whole amounts by meter. Raises UsageError."""
        named = ((USD, self.usd), (TOKENS, self.tokens), (SECONDS, self.seconds))
        return {meter: whole(meter, value) for meter, value in named if value is not None}


def whole(meter: str, value: Any) -> int:
    """Return an amount as it is counted: dollars in millionths, seconds in thousandths. Raises UsageError."""
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    scale = _SCALES.get(meter)
    if not is_number or (scale is None and not isinstance(value, int)):
        wanted = "a number" if scale is not None else "a whole number"
        raise UsageError(f"{meter} = {value!r}", remedy=f"Give {wanted}, 0 or more")
    try:
        exact = Decimal(value if isinstance(value, int | Decimal) else repr(value)) * (scale or 1)
        # Compared first: an infinite amount, or one that is no number, has no whole part.
        if not 0 <= exact < AMOUNT_LIMIT:
            raise UsageError(f"{meter} = {value!r}", remedy=f"Give 0 or more, below {AMOUNT_LIMIT:.0e}")
        return int(exact.to_integral_value(ROUND_CEILING))
    except InvalidOperation:
        raise UsageError(f"{meter} = {value!r}", remedy="Give a number, 0 or more") from None


def cost_of(value: object) -> Cost:
    """Return what is declared, or returned, as a cost; a plain number is dollars. Raises UsageError."""
    if isinstance(value, Cost):
        return value
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return Cost(usd=value)
    raise UsageError(
        f"cost={value!r} is no cost",
        remedy="Give dollars as a number, or nl.Cost(usd=..., tokens=..., seconds=...)",
    )


def shown(meter: str, amount: int) -> str:
    """Return an amount for people: $1.25, 1,200 tokens, 36.5 seconds."""
    if meter == USD:
        dollars = f"{Decimal(amount) / 1_000_000:,.6f}"
        whole_part, _, cents = dollars.partition(".")
        return f"${whole_part}.{cents.rstrip('0').ljust(2, '0')}"
    if meter == SECONDS:
        return f"{amount / 1000:,g} seconds"
    return f"{amount:,} {meter}" if amount != 1 else f"1 {meter.removesuffix('s')}"


LOST = "lost requests"
"""Under this name it is counted how many requests of a call were cancelled, since another answered first."""
READ, WRITTEN = "in ", "out "
"""Before a model's name: what a body charged of its tokens, to be priced when the call is settled."""


def charges(
    *,
    usd: float | Decimal | None = None,
    tokens: int = 0,
    tokens_in: int = 0,
    tokens_out: int = 0,
    model: str | None = None,
) -> dict[str, int]:
    """Return what a body says that it has spent, as it is kept until it is settled. Raises UsageError."""
    read, written = whole(TOKENS, tokens_in), whole(TOKENS, tokens_out)
    found: dict[str, int] = {}
    if total := whole(TOKENS, tokens) + read + written:
        found[TOKENS] = total
    if usd is not None:
        found[USD] = whole(USD, usd)  # also 0: the body says that it cost nothing
    elif model is not None:
        found |= {READ + model: read, WRITTEN + model: written}
    return found


def charged_models(charged: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the tokens read and written by model that a body charged without their price."""
    names = {name.partition(" ")[2] for name in charged if name.startswith((READ, WRITTEN))}
    return {name: (charged.get(READ + name, 0), charged.get(WRITTEN + name, 0)) for name in sorted(names)}


def charged_usage(charged: Mapping[str, int]) -> Usage | None:
    """Return what a body charged as the usage that its record reports; None if it charged nothing of it.

    Tokens of which it is not said whether they were read or written count as read. Several models are not
    named: their tokens have no price together.
    """
    models = charged_models(charged)
    tokens, usd = charged.get(TOKENS, 0), charged.get(USD)
    written = sum(out for _, out in models.values())
    if not tokens and usd is None:
        return None
    return Usage(tokens - written, written, next(iter(models)) if len(models) == 1 else "", usd=usd)
