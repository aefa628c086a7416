"""Several policies together: each judges every call, and the strictest verdict wins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ninelives.core.errors import InvariantViolation, UsageError
from ninelives.core.governance.verdicts import (
    Allow,
    Ask,
    Call,
    Deny,
    Judgement,
    Rewrite,
    strictest,
)
from ninelives.governance.policy.canary import must
from ninelives.governance.policy.declared import Declaration
from ninelives.governance.policy.file import digest_of
from ninelives.governance.policy.functions import FunctionPolicy, function_policy
from ninelives.governance.policy.judge import load_policy
from ninelives.governance.policy.language.names import SpentReader
from ninelives.governance.policy.protocol import Policy, failed, join_rewrites, rewritten

Given = str | Path | Callable[[Call], Any] | Policy


class Policies:
    """Policies as one. If one of them cannot judge a call, no other can allow it."""

    def __init__(self, members: Sequence[Policy]) -> None:
        if not members:
            raise UsageError("no policy is given", remedy="Name a file, or leave out policy=")
        self.members = tuple(members)
        self.name = " + ".join(one.name for one in members)
        self.text = members[0].text if len(members) == 1 else "".join(f"{one.digest}\n" for one in members)
        self.digest = members[0].digest if len(members) == 1 else digest_of(self.text)
        self.tables: Mapping[str, Any] = _joined_tables(members)
        self.directory = next((_directory(one) for one in members if "approvers" in one.tables), Path())
        """Where paths in the files' tables start from."""
        self._one = members[0] if len(members) == 1 else None

    def judge(self, call: Call) -> Judgement:
        """Return the strictest verdict of all policies on a call."""
        if self._one is not None:
            return _judged(self._one, call)
        found = self._combined(call)
        # One policy's rewrite may make what another denies.
        return rewritten(call, found, self._combined) if type(found.verdict) is Rewrite else found

    def _combined(self, call: Call) -> Judgement:
        return combine([_judged(one, call) for one in self.members], self.digest)

    def prove(self) -> None:
        """Prove that each policy denies what it must, and that none can outvote it. Raises UsageError."""
        for one in self.members:
            one.prove()
        allow, deny = Judgement(Allow()), Judgement(Deny("it must be denied"))
        broken = failed("", (), "it cannot be judged")
        for found in ([allow, deny], [deny, allow], [allow, broken, deny]):
            must(combine(found, ""), "denied", self.name)
        for found in ([allow, broken], [broken, allow]):
            if not combine(found, "").error:
                must(Judgement(Allow()), "refused", self.name)

    def supply_spent(self, spent: SpentReader) -> None:
        """Set what `spent("budget")` in the files reads: the share of a budget that is used up for a call."""
        for one in self.members:
            if hasattr(one, "spent"):
                one.spent = spent


def combine(found: Sequence[Judgement], digest: str) -> Judgement:
    """Return the strictest of some judgements: deny, then one that failed, then ask, rewrite, allow."""
    denied = [one for one in found if type(one.verdict) is Deny and not one.error]
    if denied:
        return Judgement(denied[0].verdict, _rules(denied), digest)
    errors = [one for one in found if one.error]
    if errors:
        return failed(digest, _rules(errors), "; ".join(one.error for one in errors))
    best = strictest(found)
    alike = [one for one in found if type(one.verdict) is type(best.verdict)]
    if type(best.verdict) is Rewrite:
        return _joined(alike, _rules(alike), digest)
    if type(best.verdict) is Ask:
        best = min(alike, key=lambda one: (-one.verdict.approvals, one.verdict.to))  # type: ignore[union-attr]
    return Judgement(best.verdict, _rules(alike), digest)


def _rules(those: Sequence[Judgement]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rule for one in those for rule in one.rules))


def _joined(found: Sequence[Judgement], rules: tuple[str, ...], digest: str) -> Judgement:
    rewrites = [one.verdict for one in found if isinstance(one.verdict, Rewrite)]
    try:
        args, clash = join_rewrites(one.args for one in rewrites)
    except Exception as error:  # noqa: BLE001 - an argument's own comparison
        return failed(digest, rules, f"rewrites cannot be compared: {type(error).__name__}")
    if clash:
        return failed(digest, rules, f"policies rewrite {clash!r} to different values")
    return Judgement(Rewrite(args, "; ".join(one.why for one in rewrites if one.why)), rules, digest)


def _judged(policy: Policy, call: Call) -> Judgement:
    """Ask one policy; one that breaks its contract does not get past this."""
    try:
        found = policy.judge(call)
    except (KeyboardInterrupt, InvariantViolation):
        raise
    except BaseException as error:  # noqa: BLE001 - another program's policy may raise anything
        return failed(policy.digest, (), f"the policy {policy.name!r} raised {type(error).__name__}")
    if type(found) is not Judgement or type(found.verdict) not in (Allow, Deny, Ask, Rewrite):
        return failed(policy.digest, (), f"the policy {policy.name!r} returned no judgement")
    if found.error and type(found.verdict) is not Deny:
        return failed(found.policy, found.rules, found.error)
    return found


def _directory(policy: Policy) -> Path:
    found: Path = getattr(policy, "directory", Path())
    return found


def _joined_tables(members: Iterable[Policy]) -> Mapping[str, Any]:
    """Join the tables of all files: lists follow each other, and two tables of one name are refused."""
    joined: dict[str, Any] = {}
    for one in members:
        for name, table in one.tables.items():
            if name not in joined:
                joined[name] = table
            elif isinstance(table, list) and isinstance(joined[name], list):
                joined[name] = [*joined[name], *table]
            else:
                raise UsageError(
                    f"two policies have a table {name!r}", remedy="Write it in one of the files only"
                )
    return joined


def open_policies(given: Given | Sequence[Any], steps: Iterable[Declaration] | None = None) -> Policies:
    """Return the policies that `Runtime(policy=...)` or `--policy` names, proved to deny what they must.

    A path, a function decorated with `@nl.policy` (or a plain one), a policy object, or a list of these.
    Raises UsageError: then the process must not start.
    """
    several = list(given) if isinstance(given, list | tuple) else [given]
    declared = list(steps) if steps is not None else None
    policies = Policies([_opened(one, declared) for one in several])
    policies.prove()
    return policies


def _opened(given: Any, steps: list[Declaration] | None) -> Policy:
    if isinstance(given, str | Path):
        return load_policy(given, steps)
    if isinstance(given, FunctionPolicy) or (hasattr(given, "judge") and hasattr(given, "prove")):
        found: Policy = given
        return found
    if callable(given):
        return function_policy(given)
    raise UsageError(
        f"policy={given!r}",
        remedy="Give a path, a function that takes an nl.Call, a policy, or a list of them",
    )
