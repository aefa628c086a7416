"""What a call has spent, when it ends: what it charged, what its answer reports, else what it reserved.

It is never less than what is known, and what is not known is presumed to be what was reserved. So an unknown
price, a body that failed midway, and an answer without usage cost the reservation. What exceeds the
reservation is spent all the same: the account says the truth, and refuses the next call.

Only a decision's answer is a model's own report. What an action returns may be a page from outside: the usage
in it never makes the call cheaper than what it reserved.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ninelives.core.errors import NotDone
from ninelives.core.governance.costs import LOST, SECONDS, TOKENS, USD, charged_models
from ninelives.core.governance.verdicts import Call
from ninelives.core.values.token_usage import Usage, usage_in
from ninelives.governance.budgets.estimates import model_of
from ninelives.governance.budgets.prices import Price, micro_dollars

UNPRICED, PRESUMED = "unpriced", "presumed"
"""Counts in an account: calls whose model has no known price; failed calls that say nothing of their cost."""


class Spent:
    """What one call has spent by meter, as far as it is known; `flags` are counts for its accounts."""

    def __init__(
        self,
        call: Call,
        outcome: bytes | BaseException,
        charged: Mapping[str, int],
        took_ms: int | None,
        price: Price | None,
        *,
        is_decision: bool,
        most_requests: int = 1,
    ) -> None:
        self._lost, self._most_requests = charged.get(LOST, 0), most_requests
        self.known: dict[str, int] = {}
        self.least: dict[str, int] = {}
        self.flags: dict[str, int] = {}
        self.is_failure = isinstance(outcome, BaseException)
        # A call that was denied inside of the body is no proof: what the body did before it was done.
        self.is_nothing = isinstance(outcome, NotDone)
        usage = usage_in(outcome) if isinstance(outcome, bytes) else None
        if TOKENS in charged:
            self.known[TOKENS] = charged[TOKENS]
        elif usage is not None:
            reported = self.known if is_decision else self.least
            reported[TOKENS] = usage.tokens_in + usage.tokens_out
        if took_ms is not None:
            self.known[SECONDS] = took_ms
        self.least[USD], is_all = _dollars(call, usage, charged, price)
        if is_all and ((usage is not None and is_decision) or charged.keys() - {TOKENS, LOST}):
            self.known[USD] = self.least[USD]
        elif not is_all:
            self.flags[UNPRICED] = 1

    def of(self, held: Mapping[str, int], meters: Mapping[str, int]) -> dict[str, int]:
        """Return what it has spent of an account with these meters, of which it had reserved `held`."""
        spent: dict[str, int] = {}
        flags: dict[str, int] = {}
        for meter in meters:
            amount = self.known.get(meter)
            presumed = held.get(meter, 0)
            if meter in (USD, TOKENS):
                # The provider may bill what was cancelled: each counts as one request's estimate.
                one = -(-presumed // self._most_requests)
                presumed, lost = one * (1 + self._lost), one * self._lost
                amount = None if amount is None else amount + lost
            if amount is None:
                amount = 0 if self.is_nothing else presumed
                if amount and self.is_failure and meter in (USD, TOKENS):
                    flags[PRESUMED] = 1
                amount = max(amount, self.least.get(meter, 0))
                if meter == USD:
                    flags |= self.flags
            if amount:
                spent[meter] = amount
        return spent | flags


def _dollars(
    call: Call, usage: Usage | None, charged: Mapping[str, int], price: Price | None
) -> tuple[int, bool]:
    """Return the dollars that are known to be spent, and whether all that is known to be used has a price."""
    total, is_all = charged.get(USD, 0), True
    used = [Usage(read, written, model) for model, (read, written) in charged_models(charged).items()]
    if USD not in charged and not used and usage is not None:
        used = [replace(usage, model=usage.model or model_of(call.args))]
    for one in used:
        found = micro_dollars(price, one)
        total += found or 0
        is_all = is_all and found is not None
    return total, is_all


def at_least(held: Mapping[str, int], charged: Mapping[str, int]) -> dict[str, int]:
    """Return what a call has spent of an account, if it is not known whether it has charged all."""
    spent = {meter: max(amount, charged.get(meter, 0)) for meter, amount in held.items()}
    flags = {PRESUMED: 1} if held.get(USD) or held.get(TOKENS) else {}
    return {meter: amount for meter, amount in spent.items() if amount} | flags
