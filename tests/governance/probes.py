"""Thirteen rules that look as if they denied a call, and deny nothing in gates that others have written.

Each stands here as it was written there, with the call that passed, and as its author would write it here.
The default allows, so that only the rule can stop the call.

    python -m tests.governance.probes
"""

from __future__ import annotations

import sys
from typing import Any

from msgspec import Struct

from ninelives.core.errors import UsageError
from ninelives.core.governance.verdicts import Call, Deny
from ninelives.engine.spec.registry import make_step
from ninelives.governance.policy.judge import load_policy

DENIED, STOPPED, REFUSED, OPEN = "denied", "stopped", "refused at load", "LET THROUGH"


class Probe(Struct, frozen=True):
    """A rule as it was written, what comes of it here, the rule as it is written here, and the call."""

    name: str
    written: str
    becomes: str
    here: str
    args: dict[str, Any]
    stops: str = DENIED


_KINDS = "action.type in ['drop', 'delete']"
_HERE = "args.action in ['drop', 'delete']"
_FOLDED = "folded(args.action) in ['drop', 'delete']"
_MORE, _TEXT = "amount.value > 1000", "'drop or delete'"


def _pay(amount: object) -> dict[str, Any]:
    return {"action": "pay", "amount": amount}


PROBES = (
    Probe("the documented rule", _KINDS, REFUSED, _HERE, {"action": "drop"}),
    Probe("upper case", _KINDS, REFUSED, _FOLDED, {"action": "DROP"}),
    Probe("a space behind it", _KINDS, REFUSED, _FOLDED, {"action": "drop "}),
    Probe("the argument is not there", _KINDS, REFUSED, _HERE, {"table": "users"}, STOPPED),
    Probe("a number", "amount > 1000", DENIED, "amount > 1000", _pay(5000)),
    Probe("a field of a number", _MORE, REFUSED, "amount > 1000", _pay(5000)),
    Probe("a number as text", _MORE, REFUSED, "amount > 1000", _pay("5,000"), STOPPED),
    Probe("NaN", _MORE, REFUSED, "amount > 1000", _pay(float("nan")), STOPPED),
    Probe("not", "not action.type == 'read'", REFUSED, "not args.action == 'read'", {"action": "drop"}),
    Probe("contains", "action.type contains 'drop'", REFUSED, "'drop' in args.action", {"action": "drop"}),
    Probe("brackets", "(action.type == 'drop')", REFUSED, "(args.action == 'drop')", {"action": "drop"}),
    Probe("equal numbers", "amount.value == 5000", REFUSED, "amount == 5000", _pay(5000)),
    Probe(
        "'or' in a text",
        f"action.type == {_TEXT}",
        REFUSED,
        f"args.action == {_TEXT}",
        {"action": "drop or delete"},
    ),
)


async def tool(action: str, amount: float = 0, table: str = "") -> None:
    """Do what the probes call."""


def outcome(when: str, args: dict[str, Any]) -> str:
    """Return what becomes of a call under one rule that denies it."""
    rule = f'id = "r"\nactions = ["tool"]\ndo = "deny"\nwhen = "{when}"\n'
    text = f'[policy]\nname = "probe"\ndefault = "allow"\n[[rule]]\n{rule}'
    try:
        policy = load_policy(text, [make_step(tool, is_decision=False)])
    except UsageError:
        return REFUSED
    found = policy.judge(Call(action="tool", kind="action", args=args, run="r", agent="a"))
    if found.error:
        return STOPPED
    return DENIED if type(found.verdict) is Deny else OPEN


def main() -> int:
    """Print what becomes of each probe; exit with 1 if a call is let through."""
    faults, said = 0, []
    for one in PROBES:
        written, here = outcome(one.written, one.args), outcome(one.here, one.args)
        print(f"{one.name:<26} {one.written:<34} {written:<16} {one.here:<42} {here}")
        faults += (written, here) != (one.becomes, one.stops)
        said += [written, here]
    print(f"{len(PROBES) - faults} of {len(PROBES)} right; {said.count(OPEN)} let through")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
