"""What tokens cost, by the price list of `genai-prices` (`ninelives[prices]`); no network is asked."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from ninelives.core.errors import UsageError
from ninelives.core.governance.costs import USD, whole

Price = Callable[[str, int, int], int | None]
"""Returns the price of tokens read and written by a model, in micro-dollars; None if it is not known."""


def price_list() -> Price | None:
    """Return the price list; None if it is not installed. Slow the first time: not on an event loop."""
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None

    def price(model: str, tokens_in: int, tokens_out: int) -> int | None:
        try:
            found = calc_price(Usage(input_tokens=tokens_in, output_tokens=tokens_out), model_ref=model)
            return whole(USD, Decimal(found.total_price))
        except (LookupError, ValueError, ArithmeticError, UsageError):
            return None

    return price
