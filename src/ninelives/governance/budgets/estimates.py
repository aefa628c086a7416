"""What a call reserves: what it may cost at most, by what is declared or found in its arguments.

In this order: `cost=` of the step; for a decision, the most tokens that its arguments allow, and their price;
`estimate` of the budget. A decision's prompt is counted by the bytes of its arguments: no tokenizer makes
more tokens than there are bytes. Without any of these a budget of money refuses the call, and a budget of
tokens refuses a decision: nothing is free because it says nothing.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from ninelives.core.errors import UsageError
from ninelives.core.governance.costs import (
    ACTIONS,
    DECISIONS,
    SECONDS,
    TOKENS,
    USD,
    Cost,
    cost_of,
    whole,
)
from ninelives.core.governance.verdicts import Call
from ninelives.core.values.token_usage import Usage
from ninelives.engine.spec import callbacks
from ninelives.engine.spec.registry import Step
from ninelives.governance.budgets.declarations import Budget
from ninelives.governance.budgets.prices import Price, micro_dollars

MOST_TOKENS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The arguments of model clients that limit how many tokens an answer has."""
UNKNOWN_MS = 1_000
"""What a call reserves of a budget of seconds if it has neither a cost, a time limit nor an estimate."""
_DEPTH = 2


def estimated(step: Step, call: Call, price: Price | None) -> dict[str, int]:
    """Return what a call may cost at most, by meter, as far as that is known.

    Raises what a `cost=` function raises; UsageError when it returns no cost.
    """
    amounts = declared(step, call).amounts()
    if step.is_decision and not {USD, TOKENS} <= amounts.keys():
        written = limit_of_tokens(call.args)
        if written is not None:
            read = len(msgspec.json.encode(call.args, enc_hook=repr))
            amounts.setdefault(TOKENS, read + written)
            found = micro_dollars(price, Usage(read, written, model_of(call.args)))
            if found is not None:
                amounts.setdefault(USD, found)
    if SECONDS not in amounts and step.timeout_seconds is not None:
        amounts[SECONDS] = whole(SECONDS, step.timeout_seconds)
    amounts[DECISIONS if step.is_decision else ACTIONS] = 1
    return amounts


def declared(step: Step, call: Call) -> Cost:
    """Return the cost that a step declares for a call; an empty one if it declares none."""
    if step.cost is None or isinstance(step.cost, Cost):
        return step.cost or Cost()
    bound = inspect.BoundArguments(step.signature, OrderedDict(call.args))
    return cost_of(callbacks.call_plain("cost=", step.cost, *bound.args, **bound.kwargs))


def most_requests(step: Step) -> int:
    """Return how many requests of one call may be paid for: those that hedging has under way at once."""
    return 1 if step.model_call is None else step.model_call.most


def of_budget(budget: Budget, step: Step, amounts: Mapping[str, int]) -> dict[str, int]:
    """Return what a call reserves of a budget, with the requests that hedging may add.

    Raises UsageError if it would be free by saying nothing.
    """
    found: dict[str, int] = {}
    for meter in budget.limits:
        amount = amounts.get(meter, budget.estimate.get(meter))
        if amount is None and meter == SECONDS:
            amount = UNKNOWN_MS
        if amount is None and (meter == USD or (meter == TOKENS and step.is_decision)):
            what = "dollars" if meter == USD else "tokens"
            raise UsageError(
                f"budget {budget.name!r} counts {what}, and {step.name!r} does not say how many it may cost",
                remedy=_remedy(step, meter),
            )
        if amount is not None:
            found[meter] = amount * (most_requests(step) if meter in (USD, TOKENS) else 1)
        elif meter == TOKENS:
            # An action that says nothing reserves nothing, and begins unless the limit has been passed.
            found[meter] = 0
    return found


def _remedy(step: Step, meter: str) -> str:
    ways = [f"Declare {step.name} with cost="]
    if step.is_decision:
        prices = " and a model with a known price (pip install 'ninelives[prices]')" if meter == USD else ""
        ways.append(f"call it with max_tokens={prices}")
    ways.append(f"give the budget estimate = {{ {meter} = ... }}, or only = [...]")
    return "; or ".join(ways)


def limit_of_tokens(args: Mapping[str, Any]) -> int | None:
    """Return the most tokens that a decision's arguments allow in its answer; None if they do not say."""
    found = [value for name in MOST_TOKENS for value in _values(args, name, _DEPTH)]
    counts = [value for value in found if type(value) is int and value > 0]
    return max(counts, default=None)


def model_of(args: Mapping[str, Any]) -> str:
    """Return the model that a decision's arguments name; empty if they do not."""
    return next((value for value in _values(args, "model", _DEPTH) if isinstance(value, str)), "")


def _values(args: Mapping[str, Any], name: str, depth: int) -> list[Any]:
    """Return the values of a name among arguments, and among the mappings that are arguments."""
    found = [args[name]] if name in args else []
    if depth > 1:
        for value in args.values():
            if isinstance(value, dict):
                found += _values(value, name, depth - 1)
    return found
