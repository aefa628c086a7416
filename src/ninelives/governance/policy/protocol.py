"""What every policy is, whatever it is written in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from ninelives.core.governance.verdicts import Allow, Call, Deny, Judgement, Rewrite


class Policy(Protocol):
    """Judges calls. `digest` names its text, which `text` is; `tables` are those that it leaves to others."""

    @property
    def name(self) -> str:
        """Its name, for people."""

    @property
    def digest(self) -> str:
        """The digest of its text, which records carry."""

    @property
    def text(self) -> str:
        """What it says, as it was written."""

    @property
    def tables(self) -> Mapping[str, Any]:
        """Tables of its file that are not rules: budgets, trips and others."""

    def judge(self, call: Call) -> Judgement:
        """Return the verdict on a call; with `error` set if it could not be reached, and then never `Allow`.

        Never raises, but KeyboardInterrupt and InvariantViolation.
        """

    def prove(self) -> None:
        """Prove that what must be denied is denied, on the path that calls take. Raises UsageError."""


def failed(policy: str, rules: tuple[str, ...], why: str, *, is_denied: bool = False) -> Judgement:
    """Return the judgement for a call that could not be judged: the run escalates, or the call is denied."""
    return Judgement(Deny(why), rules, policy, "" if is_denied else why)


def join_rewrites(several: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Any], str]:
    """Return the new values of several rewrites, and an argument for which they differ, if there is one."""
    args: dict[str, Any] = {}
    for values in several:
        for name, value in values.items():
            if name in args and args[name] != value:
                return {}, name
            args[name] = value
    return args, ""


def rewritten(call: Call, found: Judgement, judge: Callable[[Call], Judgement]) -> Judgement:
    """Return the judgement on a call that is to be rewritten: what the rewrite makes is judged again.

    It has to be allowed like any other call, and must not be rewritten to something else again.
    """
    assert isinstance(found.verdict, Rewrite)  # noqa: S101 (the caller has checked)
    args = {**call.args, **found.verdict.args}
    again = judge(replace(call, args=args))
    if again.error or type(again.verdict) is Allow:
        is_kept = not again.error
    elif isinstance(again.verdict, Rewrite):
        try:
            is_kept = all(bool(args[name] == value) for name, value in again.verdict.args.items())
        except Exception:  # noqa: BLE001 - an argument's own comparison
            is_kept = False
        if not is_kept:
            again = failed(found.policy, found.rules, "the rewritten call would be rewritten again")
    else:
        is_kept = False
    if is_kept:
        return found
    return Judgement(again.verdict, (*found.rules, *again.rules), found.policy, again.error)
