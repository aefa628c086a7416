"""Proof, at each start, that a policy denies what it must; a process where it does not must not work.

Two rules of an action that no process can declare are compiled and judged as all others are, for three calls:
one that must be denied, one for which the rule cannot be evaluated, and one that no rule names.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Final, Protocol

from ninelives.core.errors import UsageError
from ninelives.core.governance.verdicts import Allow, Call, Deny, Judgement
from ninelives.governance.policy.declared import DeclaredAction
from ninelives.governance.policy.file import PolicySpec, RuleSpec
from ninelives.governance.policy.language.sorts import sorts_of
from ninelives.governance.policy.rules import Binder, BoundRule

ACTION, WORD = "ninelives canary", "must be denied"
_RULES: Final = (
    RuleSpec(id="canary", actions=(ACTION,), kinds=(), do="deny", when=f"word == {WORD!r} and number > 1"),
    RuleSpec(id="canary-allows", actions=(ACTION,), kinds=(), do="allow", when="number > 0"),
)


class ProvedFile(Protocol):
    """What is proved of a policy file (`judge.FilePolicy`)."""

    name: str
    spec: PolicySpec
    binder: Binder

    def install(self, to: DeclaredAction, bound: Iterable[BoundRule]) -> None: ...

    def judge(self, call: Call) -> Judgement: ...


def prove_file(policy: ProvedFile) -> None:
    """Prove that a file's gate denies, fails closed, and applies its default. Raises UsageError."""
    to = DeclaredAction(
        ACTION, ("action",), inspect.Signature(), {"word": sorts_of(str), "number": sorts_of(int)}
    )
    policy.install(to, [policy.binder.bind(rule, to) for rule in _RULES])
    must(policy.judge(_call(WORD, 2)), "denied", policy.name)
    must(policy.judge(_call("another", 2)), "allowed", policy.name)
    must(policy.judge(_call(WORD, "2")), "refused", policy.name)
    must(policy.judge(_call(3, 2)), "refused", policy.name)
    default = "allowed" if policy.spec.default == "allow" else "denied"
    must(policy.judge(_call("another", 0)), default, policy.name)


def _call(word: object, number: object) -> Call:
    args = {"word": word, "number": number}
    return Call(action=ACTION, kind="action", args=args, run="canary", agent="canary")


def must(found: Judgement, what: str, policy: str) -> None:
    """Check that a judgement is what it must be. Raises UsageError."""
    is_right = {
        "denied": type(found.verdict) is Deny and not found.error,
        "allowed": type(found.verdict) is Allow and not found.error,
        # Denied outright where the file says so, else an error, which is never an allow.
        "refused": type(found.verdict) is Deny,
    }[what]
    if not is_right:
        verdict = type(found.verdict).__name__.lower()
        raise UsageError(
            f"the policy {policy!r} does not work: a call that must be {what} got {verdict!r}",
            remedy="Nothing was started. Report this with the policy file, and do not work without its gate",
        )
