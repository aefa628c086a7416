"""What tokens cost: by a price list of your own, else by that of `genai-prices` (`ninelives[prices]`).

No network is asked. Records hold tokens and models, never prices: a new price list changes no record. Your
own list is a TOML file, or a function in a module, `MODULE:FUNCTION`, that is given a `Usage` and returns
dollars (None: it does not know). `$NINELIVES_PRICES` names it for all processes, so that budgets count what
you pay.
"""

from __future__ import annotations

import importlib
import os
import tomllib
from collections.abc import Callable
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ninelives.core.errors import UsageError
from ninelives.core.governance.costs import USD, whole
from ninelives.core.values.token_usage import Usage

VARIABLE = "NINELIVES_PRICES"
Price = Callable[[Usage], Decimal | None]
"""Returns the dollars that tokens of a model cost; None if that is not known."""
_REMEDY = "A table [[price]] has model, input, output, and, if you have them, cached and cache_written"


class ModelPrice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table `[[price]]`: dollars per million tokens, for models whose name fits a pattern: `gpt-5*`."""

    model: str
    input: Decimal
    output: Decimal
    cached: Decimal | None = None
    cache_written: Decimal | None = None

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached", "cache_written"):
            given: Decimal | None = getattr(self, name)
            if given is not None and not (given.is_finite() and given >= 0):
                raise ValueError(f"{name} = {given} for {self.model!r} is no price: it is 0 or more")

    def of(self, usage: Usage) -> Decimal:
        """Return the dollars that tokens cost."""
        plain = usage.tokens_in - usage.cached - usage.cache_written
        total = plain * self.input + usage.tokens_out * self.output
        total += usage.cached * (self.input if self.cached is None else self.cached)
        total += usage.cache_written * (self.input if self.cache_written is None else self.cache_written)
        return total / 1_000_000


def price_list(source: str | None = None) -> Price | None:
    """Return the price list; None if there is none. Slow the first time: not on an event loop.

    A list of your own comes first: what it does not know is looked up in the public one. What a body has
    charged itself needs no list. Raises UsageError if the source cannot be read.
    """
    source = source or os.environ.get(VARIABLE) or ""
    lists = [one for one in (_own(source) if source else None, _public()) if one is not None]
    if not lists:
        return None

    def price(usage: Usage) -> Decimal | None:
        if usage.usd is not None:
            return Decimal(usage.usd) / 1_000_000
        return next((found for one in lists if (found := one(usage)) is not None), None)

    return price


def micro_dollars(price: Price | None, usage: Usage) -> int | None:
    """Return what tokens cost as budgets count it, rounded up; None if that is not known."""
    found = price(usage) if price is not None and (usage.model or usage.usd is not None) else None
    try:
        return whole(USD, found) if found is not None else None
    except UsageError:  # a negative price, or an amount beyond all bounds: not a price
        return None


def _public() -> Price | None:
    try:
        from genai_prices import Usage as Tokens
        from genai_prices import calc_price
    except ImportError:
        return None

    def price(usage: Usage) -> Decimal | None:
        tokens = Tokens(
            input_tokens=usage.tokens_in,
            output_tokens=usage.tokens_out,
            cache_read_tokens=usage.cached or None,
            cache_write_tokens=usage.cache_written or None,
        )
        try:
            return Decimal(calc_price(tokens, model_ref=usage.model).total_price)
        except (LookupError, ValueError, ArithmeticError):
            return None

    return price


def _own(source: str) -> Price:
    """Return the price list that a source names. Raises UsageError."""
    module, colon, name = source.partition(":")
    if colon and not source.endswith(".toml"):
        return _asking(source, module, name)
    path = Path(source)
    try:
        tables: Any = tomllib.loads(path.read_text(encoding="utf-8"))
        if tables.keys() - {"price"}:
            raise UsageError(f"{path}: there is no table {min(tables.keys() - {'price'})!r}", remedy=_REMEDY)
        prices = msgspec.convert(tables.get("price", []), tuple[ModelPrice, ...], strict=False)
    except OSError as error:
        raise UsageError(f"the prices {source!r} cannot be read: {error.strerror}", remedy=_REMEDY) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"the prices {source!r}: {error}", remedy=_REMEDY) from error

    def price(usage: Usage) -> Decimal | None:
        fits = (one for one in prices if fnmatchcase(usage.model, one.model))
        found = next(fits, None)
        return found.of(usage) if found is not None else None

    return price


def _asking(source: str, module: str, name: str) -> Price:
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        remedy = "Write MODULE:FUNCTION, of a module that Python can import"
        raise UsageError(f"the prices {source!r} cannot be loaded: {error}", remedy=remedy) from error

    def price(usage: Usage) -> Decimal | None:
        dollars = function(usage)
        return (
            Decimal(repr(dollars) if isinstance(dollars, float) else dollars) if dollars is not None else None
        )

    return price
