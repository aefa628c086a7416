"""Rules, bound to the actions that they name: conditions are compiled against each action's own arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ninelives.core.errors import NineLivesError, UsageError
from ninelives.core.governance.taint import DECLASSIFY
from ninelives.core.governance.verdicts import Allow, Ask, Deny, Rewrite, Verdict
from ninelives.governance.policy.declared import Declarations, DeclaredAction
from ninelives.governance.policy.file import PolicySpec, RuleSpec
from ninelives.governance.policy.language import globs
from ninelives.governance.policy.language.compiler import compile_condition, parse
from ninelives.governance.policy.language.errors import Unsound, did_you_mean
from ninelives.governance.policy.language.names import Run, Scope, SpentReader
from ninelives.governance.policy.language.sorts import Sorts
from ninelives.governance.policy.tables import budgets_of


class BoundRule(Struct, frozen=True, eq=False):
    """A rule as it judges one action. `condition` is None where it always applies.

    `args` are the encoded arguments of a rewrite: each verdict gets new values.
    """

    id: str
    condition: Run | None
    verdict: Verdict
    args: tuple[tuple[str, Any, bytes], ...] = ()

    def rewritten(self) -> dict[str, Any]:
        """Return the new values of a rewrite."""
        return {name: codec.decode(data) for name, codec, data in self.args}


class Binder:
    """Binds the rules of a file to actions."""

    def __init__(self, spec: PolicySpec, declared: Declarations, spent: SpentReader) -> None:
        self._spec, self._declared, self._spent = spec, declared, spent
        self._trees: dict[str, ast.expr] = {}
        # Most rules read few arguments: one compilation serves all actions that have these alike.
        self._made: dict[str, list[tuple[dict[str, Sorts | None], Run]]] = {}
        self._budgets, self._zone = budgets_of(spec), spec.zone

    def problems(self) -> Iterator[UsageError]:
        """Yield what is wrong with the rules, for everything that this process declares."""
        for rule in self._spec.rules:
            yield from self._unknown_names(rule)
            try:
                self._parsed(rule)
            except UsageError as error:
                yield error
                continue
            for one in self._named(rule):
                try:
                    self.bind(rule, one)
                except UsageError as error:
                    yield error
                    break

    def syntax_problems(self) -> Iterator[UsageError]:
        """Yield the conditions that are no expressions, where no declarations are known."""
        for rule in self._spec.rules:
            try:
                self._parsed(rule)
            except UsageError as error:
                yield error

    def rules_for(self, action: str, kind: str) -> list[RuleSpec]:
        """Return the rules that name an action's calls of one kind."""
        return [rule for rule in self._spec.rules if names(rule, action, kind)]

    def bind(self, rule: RuleSpec, to: DeclaredAction) -> BoundRule:
        """Bind a rule to an action. Raises UsageError with the file, the line and the rule."""
        condition = self._condition(rule, to) if rule.when is not None else None
        return BoundRule(rule.id, condition, _verdict(rule), tuple(self._values(rule, to)))

    def _named(self, rule: RuleSpec) -> Iterable[DeclaredAction]:
        return (one for one in self._declared if any(names(rule, one.name, kind) for kind in one.kinds))

    def _unknown_names(self, rule: RuleSpec) -> Iterator[UsageError]:
        known, spec = self._declared.names, self._spec
        for pattern in rule.actions:
            if pattern in known and pattern not in spec.elsewhere:
                yield from self._other_kinds(rule, pattern)
                continue
            if pattern in spec.elsewhere or any(globs.fits(name, pattern) for name in known):
                continue
            # "*" is right in a process that declares nothing yet.
            if pattern == "*":
                continue
            if any(globs.is_glob(pattern) and globs.fits(name, pattern) for name in spec.elsewhere):
                continue
            what = f"rule {rule.id!r}: no action is named {pattern!r}"
            remedy = did_you_mean(pattern, known, "Declared are")
            if now := next((one.name for one in self._declared.steps if pattern in one.aliases), None):
                remedy = f"It is {now!r} now, as its aliases= say"
            end = "" if remedy.endswith("?") else "."
            hint = f'{remedy}{end} If another process declares it, add it to elsewhere = ["..."] of [policy]'
            yield spec.lines.error(spec.lines.of_key("actions", rule.line), what, hint)

    def _other_kinds(self, rule: RuleSpec, action: str) -> Iterator[UsageError]:
        """Yield that a rule is about calls of an action that there never are."""
        kinds = sorted({kind for one in self._declared if one.name == action for kind in one.kinds})
        if rule.kinds and not set(kinds) & set(rule.kinds):
            line = self._spec.lines.of_key("kinds", rule.line)
            what = f"rule {rule.id!r}: no call of {action!r} is {' or '.join(rule.kinds)}"
            yield self._spec.lines.error(line, what, f"Its calls are: {', '.join(kinds)}")

    def _parsed(self, rule: RuleSpec) -> ast.expr | None:
        if rule.when is None:
            return None
        if rule.id not in self._trees:
            try:
                self._trees[rule.id] = parse(rule.when)
            except Unsound as refused:
                raise self._refusal(rule, refused) from None
        return self._trees[rule.id]

    def _condition(self, rule: RuleSpec, to: DeclaredAction) -> Run:
        for used, run in self._made.get(rule.id, ()):
            if all(to.sorts.get(name) == sorts for name, sorts in used.items()):
                return run
        tree = self._parsed(rule)
        assert tree is not None  # noqa: S101 (the caller has a condition)
        scope = Scope(
            to.name,
            to.sorts,
            actions=self._declared.names,
            budgets=self._budgets,
            zone=self._zone,
            spent=self._spent,
        )
        try:
            run = compile_condition(tree, scope)
        except Unsound as refused:
            raise self._refusal(rule, self._of_another(rule, to, refused)) from None
        self._made.setdefault(rule.id, []).append((scope.used, run))
        return run

    def _of_another(self, rule: RuleSpec, to: DeclaredAction, refused: Unsound) -> Unsound:
        """Return the refusal of an argument that another action of the rule has, with that as its remedy."""
        name = refused.node.id if isinstance(refused.node, ast.Name) else None
        having = [one.name for one in self._named(rule) if name in one.sorts]
        if not having or name in to.sorts:
            return refused
        return Unsound(
            refused.what, f"{having[0]!r} has it: give {to.name!r} a rule of its own", refused.node
        )

    def _refusal(self, rule: RuleSpec, refused: Unsound) -> UsageError:
        part = ""
        if refused.node is not None and (shown := ast.unparse(refused.node)) != rule.when:
            part = f" (in `{shown if len(shown) <= 80 else shown[:77] + '...'}`)"
        what = f"rule {rule.id!r}: {refused.what}{part}"
        return self._spec.lines.error(rule.when_line, what, refused.remedy)

    def _values(self, rule: RuleSpec, to: DeclaredAction) -> Iterator[tuple[str, Any, bytes]]:
        for name, value in rule.args.items():
            line = self._spec.lines.of_key("args", rule.line)
            if name not in to.sorts:
                what = f"rule {rule.id!r}: {name!r} is no argument of {to.name!r}"
                remedy = did_you_mean(name, to.sorts, "Its arguments are")
                raise self._spec.lines.error(line, what, remedy)
            try:
                codec, data = to.codec(name), msgspec.json.encode(value)
                codec.decode(data)
            except (NineLivesError, TypeError) as error:
                why = error.what if isinstance(error, NineLivesError) else str(error)
                why = why.removeprefix("a recorded value no longer fits its annotation: ")
                what = f"rule {rule.id!r}: {name} = {value!r} does not fit {to.name!r}: {why}"
                raise self._spec.lines.error(line, what, "Give a value of the annotation's type") from None
            yield name, codec, data


def names(rule: RuleSpec, action: str, kind: str) -> bool:
    """Return whether a rule is about calls of an action of this kind."""
    return (not rule.kinds or kind in rule.kinds) and any(globs.fits(action, one) for one in rule.actions)


def _verdict(rule: RuleSpec) -> Verdict:
    if rule.do == "deny":
        return Deny(rule.why or f"the rule {rule.id!r} denies it")
    if rule.do == "ask":
        return Ask(rule.to, rule.why or f"the rule {rule.id!r} asks", rule.approvals, rule.timeout)
    if rule.do == "rewrite":
        return Rewrite({}, rule.why or f"the rule {rule.id!r} rewrites it")
    return Allow(rule.why)


def warnings(spec: PolicySpec, declared: Declarations) -> Iterator[tuple[int, str, str]]:
    """Yield what is allowed and may still not be meant: line, what, remedy."""
    default, all_declared = spec.default, list(declared)
    for one in all_declared:
        for kind in one.kinds:
            rules = [rule for rule in spec.rules if names(rule, one.name, kind)]
            # `nl.declassify` is always declared: that a policy denies it by default needs no rule.
            is_denied_anyway = one.name == DECLASSIFY and default == "deny"
            if not rules and kind in ("action", "decision", "spawn") and not is_denied_anyway:
                whose = "it gets, as a child," if kind == "spawn" else "its calls get"
                what = f"no rule names {one.name!r} ({kind}): {whose} the default, {default}"
                yield spec.lines.of_table("policy"), what, ""
            if len({rule.to for rule in rules if rule.do == "ask"}) > 1:
                what = f"rules ask different people about {one.name!r}: only one of them will be asked"
                yield rules[0].line, what, "Ask one role, or make the conditions exclude each other"
    yield from _covered(spec, all_declared)
    yield from _undeclared_taint(spec, declared)


def _undeclared_taint(spec: PolicySpec, declared: Declarations) -> Iterator[tuple[int, str, str]]:
    """Yield labels that rules ask for and that no step declares: such a rule may never apply."""
    known = {label for step in declared.steps if step.taint is not None for label in step.taint.adds}
    for rule in spec.rules:
        for label in sorted(_labels_in(rule.when or "True") - known):
            what = f"rule {rule.id!r} asks for the label {label!r}, and no step declares taint={label!r}"
            nearest = did_you_mean(label, known, "Declared are")
            end = "" if nearest.endswith("?") else "."
            remedy = f"{nearest}{end} Else only nl.receive(taint=) and the run's label taint:{label} give it"
            yield rule.when_line, what, remedy


def _labels_in(when: str) -> set[str]:
    """Return the labels in `tainted("web")` and `"web" in taint`."""
    found: set[object] = set()
    for node in ast.walk(parse(when)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "tainted":
            found |= {one.value for one in node.args if isinstance(one, ast.Constant)}
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant):
            other = node.comparators[0]
            if isinstance(other, ast.Name) and other.id == "taint":
                found.add(node.left.value)
    return {one for one in found if isinstance(one, str)}


_STRICTNESS: Mapping[str, int] = {"allow": 0, "rewrite": 1, "ask": 2, "deny": 3}


def _covered(spec: PolicySpec, declared: list[DeclaredAction]) -> Iterator[tuple[int, str, str]]:
    """Yield the rules that can never decide, since stricter ones without a condition cover all they name."""
    pairs = [(one.name, kind) for one in declared for kind in one.kinds]
    always = [rule for rule in spec.rules if rule.when is None]
    for rule in spec.rules:
        named = [pair for pair in pairs if names(rule, *pair)]
        by: set[str] = set()
        for pair in named:
            over = [
                one.id
                for one in always
                if one.id != rule.id and _STRICTNESS[one.do] > _STRICTNESS[rule.do] and names(one, *pair)
            ]
            if not over:
                break
            by.add(over[0])
        else:
            if named:
                what = (
                    f"rule {rule.id!r} never decides: {', '.join(sorted(by))} is stricter and always applies"
                )
                yield rule.line, what, "Remove it, or give the stricter rule a condition"
