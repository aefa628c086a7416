"""Random calls are judged as the oracle says; it finds planted bugs; probes that passed other gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from ninelives.core.errors import UsageError
from ninelives.core.governance.verdicts import Allow, Deny, Judgement
from ninelives.governance.policy import combined, functions, judge
from ninelives.governance.policy.judge import load_policy
from ninelives.governance.policy.language import comparing, compiler, names
from tests.governance.fuzz_policy import fuzz
from tests.governance.policy_shop import call, policy, steps
from tests.governance.probes import OPEN, PROBES, Probe, outcome

Patch = pytest.MonkeyPatch


def test_no_random_call_is_let_through_and_each_verdict_is_right() -> None:
    found = fuzz(3_000, seed=7)
    assert (found.open, found.different) == ([], [])
    assert set(found.verdicts) == {"allow", "deny", "ask", "rewrite", "error"}


# Planted bugs ------------------------------------------------------------------------------------


def swallow(patch: Patch) -> None:
    def applies(condition: Any, one: Any, *_: Any) -> bool:
        try:
            return condition is None or condition(one) is True
        except BaseException:
            return False

    patch.setattr(judge, "_applies", applies)


def forget_failures(patch: Patch) -> None:
    patch.setattr(judge, "failed", lambda *_, **__: Judgement(Allow()))


def read_anything(patch: Patch) -> None:
    for module in (names, compiler, comparing):
        patch.setattr(module, "conformer", lambda *_: lambda value: value)


def compare_anything(patch: Patch) -> None:
    patch.setattr(comparing, "group_of", lambda _: "any")


def lack_labels_silently(patch: Patch) -> None:
    real = names.Scope.a_label
    patch.setattr(names.Scope, "a_label", lambda self, name: replaced(real(self, name)))


def replaced(found: names.Typed) -> names.Typed:
    assert found.lenient is not None
    return names.Typed(found.text, found.sorts, found.lenient)


def allow_what_raises(patch: Patch) -> None:
    real = functions._Threads.ask

    def ask(*given: Any) -> Any:
        answer = real(*given)
        return (Allow(),) if isinstance(answer, str) else answer

    patch.setattr(functions._Threads, "ask", ask)


def allow_what_is_slow(patch: Patch) -> None:
    real = functions._Threads.ask

    def ask(*given: Any) -> Any:
        answer = real(*given)
        return (Allow(),) if isinstance(answer, str) and "no verdict" in answer else answer

    patch.setattr(functions._Threads, "ask", ask)


def take_any_answer(patch: Patch) -> None:
    patch.setattr(functions, "_fault", lambda verdict, _: "" if verdict else "nothing")


def first_policy_wins(patch: Patch) -> None:
    patch.setattr(combined, "combine", lambda found, _: found[0])


def ignore_policies_that_fail(patch: Patch) -> None:
    real = combined.combine

    def combine(found: list[Judgement], digest: str) -> Judgement:
        return real([one for one in found if not one.error] or found, digest)

    patch.setattr(combined, "combine", combine)


def allow_by_default(patch: Patch) -> None:
    patch.setattr(judge.FilePolicy, "_by_default", lambda self: Judgement(Allow(), (), self.digest))


def trust_rewrites(patch: Patch) -> None:
    for module in (judge, combined):
        patch.setattr(module, "rewritten", lambda _, found, __: found)


def let_ask_lose(patch: Patch) -> None:
    real = judge.FilePolicy.applicable

    def applicable(self: Any, bound: Any) -> Any:
        made = real(self, bound)
        return made if not made.allows else judge._Applicable(made.denies, (), made.rewrites, made.allows)

    patch.setattr(judge.FilePolicy, "applicable", applicable)


def hurry_past_errors(patch: Patch) -> None:
    def plain(found: Any, strict: Any, one: Any, default: Judgement) -> Judgement | None:
        try:
            if any(condition(one) for condition in strict):
                return None
        except BaseException:
            pass
        return found.allows[0][2] if found.allows else default

    patch.setattr(judge, "_plain", plain)


def hurry_past_asks(patch: Patch) -> None:
    real = judge.FilePolicy.applicable

    def applicable(self: Any, bound: Any) -> Any:
        made = real(self, bound)
        return replace(made, strict=tuple(one for one, _, _ in made.denies if one is not None))

    patch.setattr(judge.FilePolicy, "applicable", applicable)


BUGS: Mapping[str, Callable[[Patch], None]] = {
    one.__name__: one
    for one in (
        *(swallow, forget_failures, read_anything, compare_anything, lack_labels_silently, allow_what_raises),
        *(allow_what_is_slow, take_any_answer, first_policy_wins, ignore_policies_that_fail),
        *(allow_by_default, trust_rewrites, let_ask_lose, hurry_past_errors, hurry_past_asks),
    )
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_lets_a_call_through_and_is_found(bug: str, monkeypatch: Patch) -> None:
    BUGS[bug](monkeypatch)
    found: list[str] = []
    for seed in range(40):
        found = fuzz(1_000, seed, stop=True).open
        if found:
            return
    pytest.fail("nothing was let through")


# Probes ------------------------------------------------------------------------------------------
# Rules that look as if they denied a call, and in some gates deny nothing. The default allows, so that only
# the rule can deny. Each is right here, or is refused at load with the reason; where the rule itself does
# not say it (other letters, a space), its author is shown how to say it.

DENIED: list[tuple[str, str, dict[str, Any]]] = [
    ("database", "operation in ['drop', 'delete']", {"operation": "drop"}),
    ("query", "folded(sql) in ['drop', 'delete']", {"sql": "DROP"}),
    ("query", "folded(sql) in ['drop', 'delete']", {"sql": "drop "}),
    ("refund", "cents > 1000", {"cents": 5000}),
    ("database", "not operation == 'read'", {"operation": "drop"}),
    ("database", "'drop' in operation", {"operation": "drop"}),
    ("database", "(operation == 'drop')", {"operation": "drop"}),
    ("refund", "cents == 5000", {"cents": 5000}),
    ("query", "sql == 'drop or delete'", {"sql": "drop or delete"}),
]
STOPPED: list[tuple[str, str, dict[str, Any], str]] = [
    ("refund", "cents > 1000", {"cents": "5,000"}, "is str, not int"),
    ("database", "rows > 1000", {"rows": float("nan")}, "not a number"),
    ("database", "operation in ['drop', 'delete']", {"operation": "DROP"}, "none of the values"),
    ("database", "operation in ['drop', 'delete']", {"operation": "drop "}, "none of the values"),
]
REFUSED = [
    ("database", "operation.type in ['drop', 'delete']", "which has no field 'type'"),
    ("refund", "cents.value > 1000", "which has no field 'value'"),
    ("database", "operation contains 'drop'", "not an expression"),
    ("database", "operation == 'drop or delete'", "can never be true"),
]


def probe(action: str, when: str, args: dict[str, Any]) -> Judgement:
    rule = f'actions = ["{action}"]\ndo = "deny"\nwhen = "{when}"'
    return load_policy(policy(rule, default="allow"), steps()).judge(call(action, args))


@pytest.mark.parametrize("one", PROBES, ids=lambda one: one.name)
def test_a_rule_that_looks_right_elsewhere_is_refused_at_load_or_stops_the_call(one: Probe) -> None:
    assert outcome(one.written, one.args) == one.becomes != OPEN
    assert outcome(one.here, one.args) == one.stops != OPEN


@pytest.mark.parametrize(("action", "when", "args"), DENIED)
def test_a_rule_that_looks_right_denies(action: str, when: str, args: dict[str, Any]) -> None:
    found = probe(action, when, args)
    assert type(found.verdict) is Deny
    assert not found.error


@pytest.mark.parametrize(("action", "when", "args", "why"), STOPPED)
def test_a_value_that_its_annotation_excludes_stops_the_call(
    action: str, when: str, args: dict[str, Any], why: str
) -> None:
    assert why in probe(action, when, args).error


@pytest.mark.parametrize(("action", "when", "why"), REFUSED)
def test_a_rule_that_would_deny_nothing_is_refused_at_load(action: str, when: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        probe(action, when, {})


def test_a_missing_argument_stops_the_call() -> None:
    found = load_policy(
        policy('actions = ["database"]\ndo = "deny"\nwhen = "operation == \'drop\'"', default="allow"),
        steps(),
    )
    one = call("database")
    lacking = type(one)(action="database", kind="action", args={"table": "users"}, run="r", agent="a")
    assert "no argument 'operation'" in found.judge(lacking).error
