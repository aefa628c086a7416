"""Verdicts of policy files, of functions, and of several together; the canary."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from itertools import permutations
from types import MappingProxyType
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.errors import InvariantViolation, UsageError
from ninelives.core.governance.verdicts import Allow, Ask, Call, Deny, Judgement, Rewrite
from ninelives.governance.policy import canary, combined, judge
from ninelives.governance.policy.combined import Policies, open_policies
from ninelives.governance.policy.declared import Declarations
from ninelives.governance.policy.file import digest_of, parse_policy
from ninelives.governance.policy.functions import FunctionPolicy
from ninelives.governance.policy.judge import FilePolicy, load_policy
from tests.governance.policy_shop import call, policy, steps

ALLOW = 'actions = ["refund"]\ndo = "allow"\nwhen = "cents <= 1000"'
ASK = 'actions = ["refund"]\ndo = "ask"\nwhen = "cents > 100"\nto = "role:ops"\ntimeout = "2h"'
ASK_TWO = 'actions = ["refund"]\ndo = "ask"\nwhen = "cents > 400"\nto = "role:money"\napprovals = 2'
DENY = 'actions = ["ref*"]\ndo = "deny"\nwhen = "order == \'bad\'"\nwhy = "it is known"'
CAP = 'actions = ["refund"]\ndo = "rewrite"\nwhen = "cents > 900"\nargs = { cents = 900 }'


def loaded(*rules: str, **options: str) -> FilePolicy:
    return load_policy(policy(*rules, **options), steps())


def test_the_strictest_rule_wins_in_whatever_order_they_are_written() -> None:
    for rules in permutations([ALLOW, ASK, ASK_TWO, DENY]):
        found = loaded(*rules)
        assert type(found.judge(call("refund", {"cents": 50})).verdict) is Allow
        why = f"the rule 'r{rules.index(ASK) + 1}' asks"
        assert found.judge(call("refund", {"cents": 200})).verdict == Ask("role:ops", why, 1, 7200)
        two = found.judge(call("refund", {"cents": 500})).verdict
        assert isinstance(two, Ask)
        assert (two.to, two.approvals) == ("role:money", 2), "the one that asks more people"
        denied = found.judge(call("refund", {"cents": 500, "order": "bad"}))
        assert denied.verdict == Deny("it is known")
        assert denied.policy == found.digest == digest_of(found.text)


def test_the_default_applies_only_if_no_rule_does() -> None:
    assert isinstance(loaded(DENY, default="allow").judge(call("refund")).verdict, Allow)
    verdict = loaded(DENY).judge(call("refund")).verdict
    assert verdict == Deny("no rule of the policy 'shop' allows it")
    assert isinstance(loaded(ALLOW, default="allow").judge(call("wire")).verdict, Allow)


def test_a_failing_rule_stops_what_others_allow_but_not_what_they_deny() -> None:
    failing = 'actions = ["refund"]\ndo = "{}"\nwhen = "labels.tenant == \'acme\'"'
    for do in ("deny", "ask", "allow"):
        for rules in permutations([ALLOW, failing.format(do)]):
            found = loaded(*rules, default="allow").judge(call("refund"))
            assert type(found.verdict) is Deny
            assert "the run has no label 'tenant'" in found.error
    denied = loaded(failing.format("deny"), DENY).judge(call("refund", {"order": "bad"}))
    assert denied.verdict == Deny("it is known")
    assert not denied.error
    outright = loaded(failing.format("deny"), default="allow", head='on_error = "deny"').judge(call("refund"))
    assert type(outright.verdict) is Deny
    assert not outright.error
    assert "no label" in outright.verdict.why


def test_a_rewrite_is_judged_again_and_must_be_allowed() -> None:
    found = loaded(ALLOW, CAP).judge(call("refund", {"cents": 5000}))
    assert found.verdict == Rewrite({"cents": 900}, "the rule 'r2' rewrites it")
    assert type(loaded(CAP).judge(call("refund", {"cents": 5000})).verdict) is Deny, "nothing allows 900"
    assert type(loaded(CAP, default="allow").judge(call("refund", {"cents": 5000})).verdict) is Rewrite
    forbids = 'actions = ["refund"]\ndo = "deny"\nwhen = "cents == 900"'
    assert type(loaded(ALLOW, CAP, forbids).judge(call("refund", {"cents": 5000})).verdict) is Deny
    down = 'actions = ["refund"]\ndo = "rewrite"\nwhen = "cents == 900"\nargs = { cents = 901 }'
    assert "rewritten again" in loaded(ALLOW, CAP, down).judge(call("refund", {"cents": 5000})).error
    other = 'actions = ["refund"]\ndo = "rewrite"\nwhen = "cents > 4000"\nargs = { cents = 800 }'
    assert "different values" in loaded(ALLOW, CAP, other).judge(call("refund", {"cents": 5000})).error
    asked = loaded(ALLOW, CAP, ASK).judge(call("refund", {"cents": 5000}))
    assert type(asked.verdict) is Ask, "a person decides about the call as it was made"


def test_each_rewrite_gets_values_of_its_own() -> None:
    text = policy('actions = ["ship"]\ndo = "rewrite"\nargs = { tags = ["plain"] }', default="allow")
    found = load_policy(text, steps())
    first = found.judge(call("ship")).verdict
    assert isinstance(first, Rewrite)
    first.args["tags"].append("mine")
    assert found.judge(call("ship")).verdict == Rewrite({"tags": ["plain"]}, "the rule 'r1' rewrites it")


def test_kinds_and_patterns_choose_the_calls_that_a_rule_is_about() -> None:
    found = loaded('actions = ["*"]\nkinds = ["decision", "read"]\ndo = "allow"')
    assert type(found.judge(call("ask_model")).verdict) is Allow
    assert type(found.judge(call("search")).verdict) is Allow
    assert type(found.judge(call("refund")).verdict) is Deny
    undone = loaded('actions = ["refund"]\nkinds = ["compensation"]\ndo = "allow"')
    assert type(undone.judge(call("refund", kind="compensation")).verdict) is Allow
    assert type(undone.judge(call("refund")).verdict) is Deny
    assert type(loaded('actions = ["helper"]\ndo = "allow"').judge(call("helper")).verdict) is Allow


def test_a_call_of_something_that_is_not_declared_is_an_error() -> None:
    found = loaded('actions = ["*"]\ndo = "allow"', default="allow")
    unknown = Call(action="nowhere", kind="action", args={}, run="r", agent="a")
    assert "declares no action 'nowhere'" in found.judge(unknown).error
    assert "declares no spawn 'refund'" in found.judge(call("refund", kind="spawn")).error


def test_an_action_that_is_declared_after_the_policy_was_loaded_is_judged_by_its_own_arguments() -> None:
    rule = 'actions = ["late_*"]\ndo = "deny"\nwhen = "cents > 3"'
    found = load_policy(policy(rule, default="allow", head='elsewhere = ["late_*"]'))

    @nl.action(name="late_pay")
    async def pay(cents: int) -> None: ...

    @nl.action(name="late_other")
    async def other(euros: int) -> None: ...

    def ask(action: str, **args: Any) -> Judgement:
        return found.judge(Call(action=action, kind="action", args=args, run="r", agent="a"))

    assert type(ask("late_pay", cents=2).verdict) is Allow
    assert type(ask("late_pay", cents=5).verdict) is Deny
    assert "'cents' is no argument of 'late_other'" in ask("late_other", euros=5).error


def test_what_is_spent_is_read_from_the_governor() -> None:
    budget = '[[budget]]\nname = "day"\n'
    rule = 'actions = ["refund"]\ndo = "deny"\nwhen = "spent(\'day\') > 0.5"'
    spec = parse_policy(policy(rule, default="allow") + budget)
    found = FilePolicy(spec, Declarations(steps()))
    assert "nothing in this process knows" in found.judge(call("refund")).error
    Policies([found]).supply_spent(lambda name, one: {"day": 0.4 if one.run == "run-1" else 0.6}[name])
    assert type(found.judge(call("refund")).verdict) is Allow
    assert type(found.judge(call("refund", run="run-2")).verdict) is Deny


# Functions ---------------------------------------------------------------------------------------


def test_a_function_judges_calls() -> None:
    @nl.policy
    def gate(one: nl.Call) -> Any:
        if one.args["cents"] > 900:
            return nl.Rewrite(args={"cents": 900}, why="capped")
        return nl.Ask(to="ada", why="large") if one.args["cents"] > 100 else nl.Allow()

    assert isinstance(gate, FunctionPolicy)
    assert gate(call("refund", {"cents": 1})) == nl.Allow(), "it is still the function"
    policies = open_policies(gate)
    assert type(policies.judge(call("refund", {"cents": 1})).verdict) is Allow
    assert policies.judge(call("refund", {"cents": 500})).verdict == Ask("ada", "large")
    assert policies.judge(call("refund", {"cents": 5000})).verdict == Rewrite({"cents": 900}, "capped")
    assert "nl.Rewrite" in policies.text


WRONG: list[tuple[Any, str]] = [
    (None, "NoneType, which is no verdict"),
    (True, "bool, which is no verdict"),
    ("allow", "str, which is no verdict"),
    (Allow, "StructMeta, which is no verdict"),
    (Judgement(Allow()), "Judgement, which is no verdict"),
    (Ask(approvals=0), "0 approvals"),
    (Ask(approvals=True), "True approvals"),
    (Ask(timeout=-1), "timeout=-1"),
    (Ask(to=3), "no text"),  # type: ignore[arg-type]
    (Deny(None), "without a reason"),  # type: ignore[arg-type]
    (Rewrite({}), "a Rewrite of nothing"),
    (Rewrite({"amont": 3}), "no argument of the call"),
    (Rewrite([("cents", 3)]), "no argument of the call"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("answer", "why"), WRONG)
def test_a_wrong_answer_is_an_error(answer: Any, why: str) -> None:
    found = nl.policy(lambda _: answer).judge(call("refund"))
    assert why in found.error
    assert type(found.verdict) is Deny


@pytest.mark.parametrize(
    "error",
    [ValueError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, RecursionError, InvariantViolation],
)
def test_a_function_that_raises_is_an_error(error: type[BaseException]) -> None:
    def gate(_: Call) -> Any:
        raise error

    assert f"raised {error.__name__}" in nl.policy(gate).judge(call("refund")).error


def test_a_function_that_hangs_is_an_error_and_the_next_call_is_judged() -> None:
    release, hangs = threading.Event(), threading.Event()
    hangs.set()

    @nl.policy(timeout=0.05)
    def gate(_: Call) -> Any:
        if hangs.is_set():
            release.wait()
        return nl.Allow()

    assert "gave no verdict within 0.05 s" in gate.judge(call("refund")).error
    hangs.clear()
    assert type(gate.judge(call("refund")).verdict) is Allow
    hangs.set()
    for _ in range(15):
        assert gate.judge(call("refund")).error
    assert "is not asked again" in gate.judge(call("refund")).error
    release.set()


def test_a_function_that_cannot_be_a_policy_is_refused() -> None:
    async def later(_: Call) -> Any: ...

    def nothing() -> Any: ...

    def many(_: Call) -> Any:
        yield nl.Allow()

    for function in (later, nothing, many):
        with pytest.raises(UsageError):
            nl.policy(function)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        nl.policy(timeout=0)(lambda _: nl.Allow())
    with pytest.raises(UsageError):
        open_policies(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        open_policies([])

    @nl.policy
    def returns_coroutine(one: Call) -> Any:
        return later(one)

    assert "a coroutine" in returns_coroutine.judge(call("refund")).error


# Several -----------------------------------------------------------------------------------------


def test_of_several_policies_the_strictest_wins() -> None:
    file = policy(ALLOW, ASK, DENY)
    allow, ask = (
        nl.policy(name="a")(lambda _: nl.Allow()),
        nl.policy(name="b")(lambda _: nl.Ask("x", approvals=3)),
    )
    broken = nl.policy(name="c")(lambda _: 1 / 0)
    for given in permutations([file, allow, ask]):
        found = open_policies(given, steps())
        assert found.judge(call("refund")).verdict == Ask("x", approvals=3)
        assert type(found.judge(call("refund", {"order": "bad"})).verdict) is Deny
    for given in permutations([file, allow, broken]):
        found = open_policies(given, steps())
        assert "'c' raised ZeroDivisionError" in found.judge(call("refund", {"cents": 1})).error
        assert found.judge(call("refund", {"order": "bad"})).verdict == Deny("it is known")


def test_what_one_policy_rewrites_another_still_judges() -> None:
    up = nl.policy(lambda one: nl.Rewrite({"cents": 5000}) if one.args["cents"] != 5000 else nl.Allow())
    down = nl.policy(lambda _: nl.Rewrite({"cents": 1}))
    file = policy(ALLOW)
    assert type(open_policies([up, file], steps()).judge(call("refund")).verdict) is Deny
    assert open_policies([down, file], steps()).judge(call("refund")).verdict == Rewrite({"cents": 1})
    assert "different values" in open_policies([up, down], steps()).judge(call("refund")).error


def test_tables_of_several_files_are_joined() -> None:
    class Tabled(FunctionPolicy):
        pass

    one, other = (Tabled(lambda _: nl.Allow(), name, 1.0) for name in "ab")
    one.tables, other.tables = {"budget": [{"name": "x"}]}, {"budget": [{"name": "y"}], "approvers": {}}  # type: ignore[misc]
    assert Policies([one, other]).tables == {"budget": [{"name": "x"}, {"name": "y"}], "approvers": {}}
    one.tables = {"approvers": {}}  # type: ignore[misc]
    with pytest.raises(UsageError, match="two policies have a table 'approvers'"):
        Policies([one, other])


def test_a_policy_that_breaks_its_contract_does_not_get_past() -> None:
    class Broken:
        name = digest = text = "broken"
        tables: Mapping[str, Any] = MappingProxyType({})

        def __init__(self, answer: Any) -> None:
            self.answer = answer

        def judge(self, _: Call) -> Any:
            if isinstance(self.answer, type):
                raise self.answer
            return self.answer

        def prove(self) -> None: ...

    for answer in (None, Allow(), SystemExit, Judgement(None), Judgement(Allow(), error="it failed")):  # type: ignore[arg-type]
        found = Policies([Broken(answer)]).judge(call("refund"))
        assert type(found.verdict) is Deny
        assert found.error


# The canary --------------------------------------------------------------------------------------


def test_a_gate_that_does_not_deny_keeps_the_process_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    for default in ("allow", "deny"):
        open_policies(policy(ALLOW, default=default), steps())

    def swallows(condition: Any, one: Call, *_: Any) -> bool:
        try:
            return condition is None or condition(one) is True
        except Exception:
            return False

    monkeypatch.setattr(judge, "_applies", swallows)
    with pytest.raises(UsageError, match="does not work: a call that must be refused got 'allow'"):
        open_policies(policy(ALLOW, default="allow"), steps())
    monkeypatch.setattr(judge, "_applies", lambda *_: False)
    with pytest.raises(UsageError, match="a call that must be denied"):
        open_policies(policy(ALLOW, default="allow"), steps())
    monkeypatch.undo()
    monkeypatch.setattr(combined, "strictest", lambda found: found[0])
    monkeypatch.setattr(combined, "combine", lambda found, _: next(iter(found)))
    with pytest.raises(UsageError, match="must be denied got 'allow'"):
        open_policies([policy(ALLOW), policy(ALLOW)], steps())
    assert canary.ACTION not in judge.load_policy(policy(ALLOW), steps()).text


# Files -------------------------------------------------------------------------------------------

FILES = [
    ("", "no table [policy]"),
    ("[policy", "is not TOML"),
    ('[policy]\nname = "x"', "'default' is missing"),
    ('[policy]\ndefault = "deny"', "no usable name"),
    ('[policy]\nname = "x"\ndefault = "maybe"', "default = 'maybe'"),
    ('[policy]\nname = "x"\ndefault = "deny"\non_error = "allow"', "on_error = 'allow'"),
    ('[policy]\nname = "x"\ndefault = "deny"\nrules = []', "unknown key 'rules'"),
    ('[policy]\nname = "x"\ndefault = "deny"\n[[rules]]\nid = "a"', "unknown table 'rules'"),
    ('[policy]\nname = "x"\ndefault = "deny"\n[rule]\nid = "a"', "no list of tables"),
    (policy('actions = ["refund"]'), "'do' is missing"),
    (policy('actions = ["refund"]\ndo = "forbid"'), "do = 'forbid'"),
    (policy('actions = ["refund"]\ndo = "deny"\nif = "cents > 3"'), "unknown key 'if'"),
    (policy('actions = ["refund"]\ndo = "deny"\nto = "ops"'), "unknown key 'to' beside do = 'deny'"),
    (policy('actions = "refund"\ndo = "deny"'), "actions is no list of names"),
    (policy('actions = []\ndo = "deny"'), "names no actions"),
    (policy('do = "deny"'), "names no actions"),
    (policy('actions = ["refnd"]\ndo = "deny"'), "Did you mean 'refund'?"),
    (policy('actions = ["pay_*"]\ndo = "deny"'), "no action is named 'pay_*'"),
    (policy('actions = ["refund"]\nkinds = ["actions"]\ndo = "deny"'), "Did you mean 'action'?"),
    (policy('actions = ["refund"]\nkinds = []\ndo = "allow"'), "names no kinds"),
    (policy('actions = ["refund"]\nkinds = ["read"]\ndo = "deny"'), "no call of 'refund' is read"),
    (policy('actions = ["refund"]\ndo = "deny"\nwhen = ""'), "when is no text"),
    (policy('actions = ["refund"]\ndo = "deny"\nwhen = true'), "when is no text"),
    (policy('actions = ["refund"]\ndo = "ask"\napprovals = 0'), "approvals = 0"),
    (policy('actions = ["refund"]\ndo = "ask"\ntimeout = "soon"'), "timeout = 'soon'"),
    (policy('actions = ["refund"]\ndo = "rewrite"'), "does not say what it rewrites"),
    (policy('actions = ["refund"]\ndo = "rewrite"\nargs = { cnts = 3 }'), "Did you mean 'cents'?"),
    (policy('actions = ["refund"]\ndo = "rewrite"\nargs = { cents = "3" }'), "'refund': found str '3'"),
    (
        policy('actions = ["refund", "query"]\nwhen = "cents > 3"\ndo = "deny"'),
        "'refund' has it: give 'query' a rule",
    ),
    (policy(ALLOW).replace('id = "r1"', 'id = "r 1"'), "no usable id"),
    (policy(ALLOW, ALLOW).replace('"r2"', '"r1"'), "two rules are 'r1'"),
    (policy(ALLOW) + '[[bugdet]]\nname = "x"\n', "Did you mean 'budget'?"),
    ("[policy]\n" + "x" * 300_000, "larger than 256 KiB"),
    ("[policy]\na = " + "[" * 5000 + "]" * 5000, "not TOML"),
]


@pytest.mark.parametrize(("text", "why"), FILES)
def test_a_file_that_is_not_exactly_right_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        load_policy(text or "\n", steps())
    assert why in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load_policy(tmp_path / "none.toml", steps())
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load_policy(str(tmp_path), steps())
    (tmp_path / "odd.toml").write_bytes(b"\xff\xfe[policy]")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_policy(tmp_path / "odd.toml", steps())
