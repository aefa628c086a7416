"""A policy file, loaded: all of its rules judge each call, and the strictest verdict wins.

Deny over ask over rewrite over allow; the order of rules means nothing. The default applies only if no rule
does. A rule that cannot be evaluated never makes a call more free: unless another rule denies it, the run
escalates (or the call is denied, by `on_error`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from ninelives.core.errors import InvariantViolation, UsageError
from ninelives.core.governance.verdicts import Allow, Ask, Call, Deny, Judgement, Rewrite
from ninelives.governance.policy import canary
from ninelives.governance.policy.declared import Declaration, Declarations, DeclaredAction
from ninelives.governance.policy.file import PolicySpec, parse_policy, read_text
from ninelives.governance.policy.language.errors import Unanswerable, Unstored
from ninelives.governance.policy.language.names import Run, SpentReader
from ninelives.governance.policy.protocol import failed, join_rewrites, rewritten
from ninelives.governance.policy.rules import Binder, BoundRule
from ninelives.governance.policy.tables import check_tables

Condition = tuple[Run | None, BoundRule, Judgement]


class _Applicable(Struct, frozen=True, eq=False):
    """The rules for one action's calls of one kind, by verdict; `error` if they could not be bound."""

    denies: tuple[Condition, ...] = ()
    asks: tuple[Condition, ...] = ()
    rewrites: tuple[Condition, ...] = ()
    allows: tuple[Condition, ...] = ()
    error: str = ""
    strict: tuple[Run, ...] | None = None
    """The conditions of all rules that could keep a call from being allowed; None if one has no condition."""


class FilePolicy:
    """A policy that was read from a file."""

    def __init__(self, spec: PolicySpec, declared: Declarations) -> None:
        self.spec, self.declared = spec, declared
        self.name, self.digest, self.text = spec.name, spec.digest, spec.text
        self.tables: Mapping[str, Any] = spec.tables
        self.directory = spec.directory
        self.spent: SpentReader = _no_budgets
        """Returns the share of a budget that is used up; the governor sets it."""
        self.binder = Binder(spec, declared, self._read_spent)
        self._rules: dict[tuple[str, str], _Applicable] = {}
        self._default = self._by_default()

    def check(self) -> list[UsageError]:
        """Return what is wrong with the rules and tables."""
        return [*self.binder.problems(), *check_tables(self.spec, self.declared.steps)]

    def bind_all(self) -> None:
        """Bind the rules to all that is declared, so that no call has to."""
        for one in self.declared:
            for kind in one.kinds:
                self._applicable(one.name, kind)

    def judge(self, call: Call) -> Judgement:
        """Return the strictest verdict of the rules on a call, else the default."""
        rules = self._rules.get((call.action, call.kind))
        if rules is not None and rules.strict is not None:
            plain = _plain(rules, rules.strict, call, self._default)
            if plain is not None:
                return plain
        found = self._judged(call)
        return rewritten(call, found, self._judged) if type(found.verdict) is Rewrite else found

    def _judged(self, call: Call) -> Judgement:
        found = self._rules.get((call.action, call.kind)) or self._applicable(call.action, call.kind)
        if found.error:
            return self._failed((), found.error)
        failures: list[tuple[str, BaseException]] = []
        for condition, _, judgement in found.denies:
            if _applies(condition, call, judgement, failures):
                return judgement
        return self._judge_rest(found, call, failures)

    def _judge_rest(
        self, found: _Applicable, call: Call, failures: list[tuple[str, BaseException]]
    ) -> Judgement:
        best = None
        for condition, _, judgement in found.asks:
            if _applies(condition, call, judgement, failures):
                best = judgement if best is None else _stricter_ask(best, judgement)
        rewriting = [
            bound for condition, bound, j in found.rewrites if _applies(condition, call, j, failures)
        ]
        for condition, _, judgement in found.allows:
            if _applies(condition, call, judgement, failures) and best is None:
                best = judgement
        if failures:
            # Also where another rule allows: what the failed one would have said is not known.
            rules = tuple(name for name, _ in failures)
            return self._failed(rules, "; ".join(_described(name, error) for name, error in failures))
        if rewriting and (best is None or type(best.verdict) is not Ask):
            return self._joined(rewriting)
        return self._default if best is None else best

    def _joined(self, rewriting: list[BoundRule]) -> Judgement:
        """Join the rewrites of a call."""
        rules = tuple(one.id for one in rewriting)
        try:
            args, clash = join_rewrites([one.rewritten() for one in rewriting])
        except Exception as error:  # noqa: BLE001 - whatever the argument's own code raises
            return self._failed(rules, _described(rules[0], error))
        if clash:
            return self._failed(rules, f"rules {', '.join(rules)} rewrite {clash!r} to different values")
        why = "; ".join(one.verdict.why for one in rewriting if isinstance(one.verdict, Rewrite))
        return Judgement(Rewrite(args, why), rules, self.digest)

    def _read_spent(self, name: str, call: Call) -> float:
        return self.spent(name, call)

    def prove(self) -> None:
        """Prove that the gate stands (`canary`). Raises UsageError."""
        canary.prove_file(self)

    def _applicable(self, action: str, kind: str) -> _Applicable:
        """Bind the rules to an action, once; an action of this process that was declared later, too."""
        # An action without rules is not kept: it may be declared later.
        try:
            to = self.declared.find(action, kind)
            if to is None:
                return _Applicable(error=f"this process declares no {kind} {action!r}: no rule can judge it")
            bound = [self.binder.bind(rule, to) for rule in self.binder.rules_for(action, kind)]
        except UsageError as error:
            return _Applicable(error=str(error))
        except Exception as error:  # noqa: BLE001 - users' annotations are code of their own
            return _Applicable(error=f"rules cannot be bound to {action!r}: {type(error).__name__}")
        self._rules[action, kind] = made = self.applicable(bound)
        return made

    def applicable(self, bound: Iterable[BoundRule]) -> _Applicable:
        """Return bound rules by verdict, each with the judgement that it leads to."""
        kinds: dict[type, list[Condition]] = {Deny: [], Ask: [], Rewrite: [], Allow: []}
        for one in bound:
            judgement = Judgement(one.verdict, (one.id,), self.digest)
            kinds[type(one.verdict)].append((one.condition, one, judgement))
        denies, asks, rewrites, allows = (tuple(kinds[kind]) for kind in (Deny, Ask, Rewrite, Allow))
        strict = [condition for condition, _, _ in (*denies, *asks, *rewrites)]
        conditions = tuple(one for one in strict if one is not None)
        is_open = len(conditions) == len(strict)
        return _Applicable(denies, asks, rewrites, allows, strict=conditions if is_open else None)

    def install(self, to: DeclaredAction, bound: Iterable[BoundRule]) -> None:
        """Add the rules of an action that no file can name: the canary's."""
        self._rules[to.name, to.kinds[0]] = self.applicable(bound)

    def _by_default(self) -> Judgement:
        if self.spec.default == "allow":
            return Judgement(Allow(), (), self.digest)
        return Judgement(Deny(f"no rule of the policy {self.name!r} allows it"), (), self.digest)

    def _failed(self, rules: tuple[str, ...], why: str) -> Judgement:
        what = f"the policy {self.name!r} could not judge the call: {why}"
        return failed(self.digest, rules, what, is_denied=self.spec.on_error == "deny")


def _plain(found: _Applicable, strict: tuple[Run, ...], call: Call, default: Judgement) -> Judgement | None:
    """Return the judgement of a call that only allowing rules apply to, or none; None: look at each rule.

    The hot path. Whatever is not exactly False or True, or raises, is asked again, rule by rule.
    """
    best: Judgement | None = None
    try:
        for condition in strict:
            if condition(call) is not False:
                return None
        for allows, _, judgement in found.allows:
            answer = True if allows is None else allows(call)
            if answer is True:
                best = best or judgement
            elif answer is not False:
                return None
    except (KeyboardInterrupt, InvariantViolation):
        raise
    except BaseException:  # noqa: BLE001 - an argument's own code may raise anything
        return None
    return best or default


def _applies(
    condition: Run | None, call: Call, judgement: Judgement, failures: list[tuple[str, BaseException]]
) -> bool:
    if condition is None:
        return True
    try:
        answer = condition(call)
    except (KeyboardInterrupt, InvariantViolation):
        raise
    except BaseException as error:  # noqa: BLE001 - an argument's own code may raise anything
        failures.append((judgement.rules[0], error))
        return False
    if answer is True:
        return True
    if answer is not False:
        failures.append((judgement.rules[0], Unanswerable("it is neither true nor false")))
    return False


def _stricter_ask(one: Judgement, other: Judgement) -> Judgement:
    """Return the request that asks more people; of equal ones the first by name, whatever their order."""
    return min(one, other, key=lambda each: (-each.verdict.approvals, each.verdict.to, each.rules))  # type: ignore[union-attr]


def _described(rule: str, error: BaseException) -> str:
    """Describe a failure without values: it is recorded."""
    if isinstance(error, Unstored):
        return f"rule {rule!r}: {NOT_STORED}{error}"
    text = str(error) if isinstance(error, Unanswerable | TypeError) else ""
    return f"rule {rule!r}: {text or type(error).__name__}"


NOT_STORED: Final = "not stored: "
"""Begins the reason of a rule that reads what the journal did not keep (`history`)."""


def _no_budgets(name: str, _: Call) -> float:
    raise Unanswerable(f"nothing in this process knows what was spent of {name!r}")


def load_policy(given: str | Path, steps: Iterable[Declaration] | None = None) -> FilePolicy:
    """Load a policy from a file or a text, checked against steps; by default against all of this process.

    Raises UsageError with the file, the line, the rule and a remedy, for the first fault; a rule that could
    never decide what it seems to say is a fault.
    """
    text, source = read_text(given)
    policy = FilePolicy(parse_policy(text, source), Declarations(steps))
    problems = policy.check()
    if problems:
        (first, *more) = problems
        if more:
            first.remedy = f"{first.remedy} (and {len(more)} more: ninelives policy check)"
        raise first
    policy.bind_all()
    return policy
