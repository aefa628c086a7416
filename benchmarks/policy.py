"""The CPU time of a verdict: `python -m benchmarks.policy`. Prints microseconds per call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import ninelives as nl
from ninelives.core.governance.verdicts import Call
from ninelives.governance.policy.combined import Policies, open_policies

ROUNDS, CALLS = 30, 2_000


@nl.action
async def refund(order: str, cents: int) -> None:
    """Do nothing."""


@nl.action
async def other(order: str, cents: int) -> None:
    """Do nothing."""


CALL = Call(action="refund", kind="action", args={"order": "o-1", "cents": 500}, run="r", agent="a")


def rules(count: int, action: str, do: str = "deny") -> str:
    """Return rules that do not apply to the call."""
    return "".join(
        f'[[rule]]\nid = "{action}-{do}-{number}"\nactions = ["{action}"]\n'
        f'when = "cents > {1_000 + number}"\ndo = "{do}"\n'
        for number in range(count)
    )


def file(text: str) -> str:
    """Return a policy that allows small refunds, with more rules."""
    allow = '[[rule]]\nid = "small"\nactions = ["refund"]\nwhen = "cents <= 1000"\ndo = "allow"\n'
    return f'[policy]\nname = "bench"\ndefault = "deny"\n{allow}{text}'


def gate(call: nl.Call) -> nl.Allow | nl.Deny:
    """Judge as the rule does."""
    return nl.Allow() if call.args["cents"] <= 1000 else nl.Deny("too much")


def micros(judge: Callable[[Call], object], calls: int = CALLS) -> tuple[float, float]:
    """Return the median and the slowest tenth of the rounds, per call."""
    rounds = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(calls):
            judge(CALL)
        rounds.append((time.process_time() - begun) / calls * 1e6)
    return statistics.median(rounds), statistics.quantiles(rounds, n=10)[-1]


def main() -> None:
    """Print the table."""
    ten = rules(9, "refund")
    cases: list[tuple[str, Policies, int]] = [
        ("1 rule", open_policies(file("")), CALLS),
        ("100 rules, 10 for this action", open_policies(file(ten + rules(90, "other"))), CALLS),
        ("100 rules, all for this action", open_policies(file(rules(99, "refund"))), CALLS),
        ("1,000 rules, 10 for this action", open_policies(file(ten + rules(989, "other"))), CALLS),
        ("a function, on its thread", open_policies(gate), 200),
    ]
    for name, policies, calls in cases:
        median, slow = micros(policies.judge, calls)
        print(f"{name:<40} {median:8.2f} µs median  {slow:8.2f} µs p90 of {ROUNDS} rounds")


if __name__ == "__main__":
    main()
