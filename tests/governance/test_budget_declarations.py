"""Declared budgets, their windows and accounts, and what calls reserve and spend: pure."""

from __future__ import annotations

import math
import tomllib
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ninelives as nl
from ninelives.core.errors import NotDone, UsageError
from ninelives.core.governance import costs
from ninelives.core.governance.accounts import Over, Reserve, Settle
from ninelives.core.governance.costs import Cost
from ninelives.core.governance.verdicts import Ask, Call, Deny
from ninelives.core.ids import check_id
from ninelives.core.values.token_usage import Usage
from ninelives.engine.governor import Hold
from ninelives.engine.spec.registry import Step, find_step
from ninelives.governance.budgets import windows
from ninelives.governance.budgets.account_names import account_name, parsed
from ninelives.governance.budgets.budgets import Budgets
from ninelives.governance.budgets.declarations import check, joined
from ninelives.governance.budgets.prices import Price

NOON = int(datetime(2027, 1, 31, 12, 0, 30, tzinfo=UTC).timestamp() * 1000)


def tables(text: str) -> Any:
    return tomllib.loads(text).get("budget", [])


def budgets(text: str, price: Price | None = None, now_ms: int = NOON) -> Budgets:
    clock = iter(range(0, 10**6, 250))
    return Budgets(check(tables(text)), now_ms=lambda: now_ms, boot_ms=lambda: next(clock), price=price)


def call_of(step: Step, **args: Any) -> Call:
    kind = "decision" if step.is_decision else "action"
    facts: dict[str, Any] = {"run": "r1", "agent": "shop", "step": "main:x#0", "labels": {"tenant": "acme"}}
    facts |= {
        name: args.pop(name) for name in ("run", "agent", "labels", "kind", "parent", "root") if name in args
    }
    bound = step.signature.bind(**args)
    bound.apply_defaults()
    return Call(**{"kind": kind, **facts}, action=step.name, args=bound.arguments)


def step(name: str) -> Step:
    found = find_step(name)
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def _steps() -> None:
    @nl.decision(name="ask")
    async def ask(prompt: str, model: str = "m", max_tokens: int | None = None) -> str:
        return prompt

    @nl.action(name="pay", cost=lambda cents: Cost(usd=Decimal(cents) / 100))
    async def pay(cents: int) -> None: ...

    @nl.action(name="look", timeout=2.5)
    async def look() -> None: ...

    @nl.action(name="buy", cost=0.1)
    async def buy() -> None: ...


def price(used: Usage) -> Decimal | None:
    return Decimal(2 * used.tokens_in + 10 * used.tokens_out) / 1_000_000 if used.model == "m" else None


# Declarations -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('scope="store"\nusd=1', "has no name"),
        ('name="b"\nusd=1', "has no scope"),
        ('name="b"\nscope="store"', "limits nothing"),
        ('name="B b"\nscope="store"\nusd=1', "name = 'B b'"),
        ('name="b"\nscope="tenant"\nusd=1', "scope = 'tenant'"),
        ('name="b"\nscope="label:"\nusd=1', "scope = 'label:'"),
        ('name="b"\nscope="store"\nusd=1\nlimit=3', "unknown key 'limit'"),
        ('name="b"\nscope="store"\nusd=1\nper="week"', "per = 'week'"),
        ('name="b"\nscope="store"\nusd=1\non="allow"', "on = 'allow'"),
        ('name="b"\nscope="store"\nusd=1\non="wait"', "wait without end"),
        ('name="b"\nscope="store"\nusd=0', "usd = 0"),
        ('name="b"\nscope="store"\nusd=-1', "usd = -1"),
        ('name="b"\nscope="store"\nusd=nan', "usd = nan"),
        ('name="b"\nscope="store"\nusd=inf', "usd = inf"),
        ('name="b"\nscope="store"\nusd=true', "usd = True"),
        ('name="b"\nscope="store"\nusd="1"', "usd = '1'"),
        ('name="b"\nscope="store"\ntokens=1.5', "tokens = 1.5"),
        ('name="b"\nscope="store"\nactions=99999999999999999999', "actions ="),
        ('name="b"\nscope="store"\nusd=1\nto="ada"', "to = 'ada'"),
        ('name="b"\nscope="store"\nusd=1\nonly=[]', "only = []"),
        ('name="b"\nscope="store"\nusd=1\nonly="ask"', "only = 'ask'"),
        ('name="b"\nscope="store"\nusd=1\nestimate={tokens=1}', "does not limit"),
        ('name="b"\nscope="store"\nusd=1\nestimate={usd=2}', "has $1.00, and estimates $2.00"),
        ('name="b"\nscope="store"\nactions=1\nestimate={actions=1}', "estimate of 'actions'"),
        ('name="b"\nscope="store"\nusd=1\nestimate=1', "estimate = 1"),
        (
            'name="b"\nscope="store"\nusd=1\n[[budget]]\nname="b"\nscope="run"\nusd=1',
            "two budgets are named 'b'",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        check(tables(f"[[budget]]\n{text}"))
    assert why in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize("table", [{}, {"name": "b"}, "b", [1], [[]]])
def test_what_is_no_list_of_tables_is_refused(table: object) -> None:
    with pytest.raises(UsageError):
        check(table)


def test_two_policies_with_one_budget_name_are_refused() -> None:
    one = check(tables('[[budget]]\nname="b"\nscope="store"\nusd=1'))
    with pytest.raises(UsageError, match="two budgets are named 'b'"):
        joined([*one, *one])


def test_a_step_that_a_money_budget_could_only_refuse_is_refused_at_load() -> None:
    steps = [step(name) for name in ("ask", "pay", "look")]
    money = '[[budget]]\nname="b"\nscope="store"\nusd=1\n'
    with pytest.raises(UsageError, match="'look' does not say what it costs"):
        check(tables(money), steps)
    for more in ('only=["ask", "p*"]', "estimate={usd=0.05}"):
        check(tables(money + more), steps)
    with pytest.raises(UsageError, match="no step is named 'aks'"):
        check(tables(money + 'only=["aks"]'), steps, {"ask", "pay"})
    check(tables(money + 'only=["other"]'), steps, {"ask", "other"})  # as [policy] elsewhere says


# Windows and names ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("per", "name", "ends"),
    [
        ("none", "all", None),
        ("minute", "2027-01-31T12:00", datetime(2027, 1, 31, 12, 1, tzinfo=UTC)),
        ("hour", "2027-01-31T12", datetime(2027, 1, 31, 13, tzinfo=UTC)),
        ("day", "2027-01-31", datetime(2027, 2, 1, tzinfo=UTC)),
        ("month", "2027-01", datetime(2027, 2, 1, tzinfo=UTC)),
    ],
)
def test_a_window_has_a_name_and_an_end(per: str, name: str, ends: datetime | None) -> None:
    assert windows.window_at(per, NOON) == name
    assert windows.end_ms(name) == (None if ends is None else ends.timestamp() * 1000)


@pytest.mark.parametrize("name", ["", "2027", "2027-1", "2027-13", "2027-01-32", "2027-01-31T1", "refused"])
def test_what_is_no_window_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no window"):
        windows.end_ms(name)


@given(st.sampled_from(["minute", "hour", "day", "month"]), st.integers(0, 4_102_444_800_000))
def test_each_moment_is_in_the_window_before_its_end(per: str, now_ms: int) -> None:
    window = windows.window_at(per, now_ms)
    end = windows.end_ms(window)
    assert end is not None
    assert now_ms < end
    assert windows.window_at(per, end - 1) == window
    assert windows.window_at(per, end) != window


_SCOPES = st.sampled_from(["agent", "action", "run", "tree", "label:tenant", "label:a b/ü"])


@given(_SCOPES, st.text(max_size=255), st.text(max_size=255))
def test_an_account_has_a_name_that_can_be_kept_and_is_no_other_values(
    scope: str, one: str, other: str
) -> None:
    name = account_name("b" * 60, "2027-01-31T12:00", scope, one)
    assert check_id(name, "document's name") == name
    found = parsed(name)
    assert found is not None
    assert (found.budget, found.window, found.scope) == ("b" * 60, "2027-01-31T12:00", scope)
    assert (name == account_name("b" * 60, "2027-01-31T12:00", scope, other)) == (one == other)


@pytest.mark.parametrize(
    "name", ["halts", "budget/", "budget/b/all", "budget/b/all/store=x", "budget/b/all/run"]
)
def test_other_documents_are_no_accounts(name: str) -> None:
    assert parsed(name) is None


# Amounts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("meter", "value", "amount"),
    [
        ("usd", 0.1, 100_000),
        ("usd", 0.1 + 0.2, 300_001),  # rounded up, never down
        ("usd", Decimal("0.0000001"), 1),
        ("usd", 3, 3_000_000),
        ("seconds", 2.5, 2_500),
        ("tokens", 7, 7),
    ],
)
def test_amounts_are_whole(meter: str, value: Any, amount: int) -> None:
    assert costs.whole(meter, value) == amount


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -1, -0.1, True, "1", None, 1e300, Decimal("NaN"), 2**63]
)
def test_what_is_no_amount_is_refused(value: Any) -> None:
    with pytest.raises(UsageError):
        costs.whole("usd", value)


@pytest.mark.parametrize("cost", ["1", True, -1, Cost(usd=-1), Cost(tokens=1.5)])  # type: ignore[arg-type]
def test_a_cost_that_is_none_is_refused_when_it_is_declared(cost: Any) -> None:
    with pytest.raises(UsageError, match="bad"):

        @nl.action(name="bad", cost=cost)
        async def bad() -> None: ...


# What a call reserves ---------------------------------------------------------------------------------

ALL = """[[budget]]
name = "b"
scope = "label:tenant"
per = "day"
usd = 1
tokens = 1000
actions = 5
decisions = 3
seconds = 60
"""


def test_an_action_reserves_what_it_declares() -> None:
    (found,) = budgets(ALL).reserves(step("pay"), call_of(step("pay"), cents=25))
    limits = {"usd": 1_000_000, "tokens": 1000, "actions": 5, "decisions": 3, "seconds": 60_000}
    assert found == Reserve(
        "budget/b/2027-01-31/label:tenant=acme",
        {"usd": 250_000, "tokens": 0, "actions": 1, "seconds": 1000},
        limits,
    )
    (found,) = budgets(ALL + "estimate={usd=0.5}").reserves(step("look"), call_of(step("look")))
    assert found.amounts == {"usd": 500_000, "tokens": 0, "actions": 1, "seconds": 2500}


def test_a_decision_reserves_the_most_tokens_that_its_arguments_allow() -> None:
    ask, known = step("ask"), budgets(ALL, price)
    (found,) = known.reserves(ask, call_of(ask, prompt="hi", max_tokens=100))
    read = len(b'{"prompt":"hi","model":"m","max_tokens":100}')
    assert found.amounts == {
        "usd": 2 * read + 1000,
        "tokens": read + 100,
        "decisions": 1,
        "seconds": 1000,
    }


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"prompt": "hi"}, "call it with max_tokens="),
        ({"prompt": "hi", "model": "unknown", "max_tokens": 5}, "counts dollars, and 'ask'"),
    ],
)
def test_a_decision_whose_cost_is_not_known_is_denied(args: dict[str, Any], why: str) -> None:
    ask, known = step("ask"), budgets(ALL, price)
    call = call_of(ask, **args)
    (found,) = known.reserves(ask, call)
    ((meter, amount),) = found.amounts.items()
    assert amount > found.limits[meter], "no account lets it pass"
    said = known.over(ask, call, Over(found.account, meter, 0, 0, 0, 1))
    assert isinstance(said, Deny)
    assert why in said.why


def test_a_cost_that_raises_denies() -> None:
    @nl.action(name="odd", cost=lambda: 1 / 0)
    async def odd() -> None: ...

    known, call = budgets(ALL), call_of(step("odd"))
    (found,) = known.reserves(step("odd"), call)
    said = known.over(step("odd"), call, Over(found.account, "refused", 0, 0, 0, 1))
    assert isinstance(said, Deny)
    assert "ZeroDivisionError" in said.why


@pytest.mark.parametrize(
    ("scope", "facts", "value"),
    [
        ("store", {}, "store"),
        ("agent", {}, "agent=shop"),
        ("action", {}, "action=buy"),
        ("run", {}, "run=r1"),
        ("tree", {}, "tree=r1"),
        ("tree", {"parent": "r0", "root": "top"}, "tree=top"),
        ("label:tenant", {}, "label:tenant=acme"),
        ("label:tenant", {"labels": {}}, "label:tenant="),
    ],
)
def test_each_scope_has_its_account(scope: str, facts: dict[str, Any], value: str) -> None:
    known = budgets(f'[[budget]]\nname="b"\nscope="{scope}"\nactions=5')
    (found,) = known.reserves(step("buy"), call_of(step("buy"), **facts))
    assert found.account == f"budget/b/all/{value}"


def test_a_tree_whose_root_is_unknown_is_denied() -> None:
    known = budgets('[[budget]]\nname="b"\nscope="tree"\nactions=5')
    call = call_of(step("buy"), parent="r0")
    (found,) = known.reserves(step("buy"), call)
    said = known.over(step("buy"), call, Over(found.account, "refused", 0, 0, 0, 1))
    assert isinstance(said, Deny)


def test_only_what_is_named_is_counted_and_a_spawn_never() -> None:
    known = budgets('[[budget]]\nname="b"\nscope="store"\nactions=5\nonly=["b*"]')
    assert known.reserves(step("buy"), call_of(step("buy")))
    assert not known.reserves(step("look"), call_of(step("look")))
    assert not known.reserves(step("buy"), call_of(step("buy"), kind="spawn"))


def test_the_strictest_budget_comes_first() -> None:
    kinds = ("wait", "escalate", "deny")
    text = "".join(
        f'[[budget]]\nname="{on}"\nscope="store"\nper="day"\nactions=5\non="{on}"\n' for on in kinds
    )
    found = budgets(text).reserves(step("buy"), call_of(step("buy")))
    assert [parsed(one.account).budget for one in found] == ["deny", "escalate", "wait"]  # type: ignore[union-attr]


# Over a limit -----------------------------------------------------------------------------------------


def over(account: str, amount: int = 100_000) -> Over:
    return Over(account, "usd", 1_000_000, 900_000, 50_000, amount)


@pytest.mark.parametrize(("on", "kind"), [("deny", Deny), ("wait", Hold), ("escalate", Ask)])
def test_over_a_limit_a_call_is_denied_waits_or_is_put_before_a_person(on: str, kind: type) -> None:
    known = budgets(f'[[budget]]\nname="b"\nscope="store"\nper="hour"\nusd=1\non="{on}"')
    call = call_of(step("buy"))
    (found,) = known.reserves(step("buy"), call)
    said = known.over(step("buy"), call, over(found.account))
    assert type(said) is kind
    if isinstance(said, Hold):
        assert said.due_ms == NOON - 30_000 + 3_600_000
        assert said.what == "until 2027-01-31 13:00Z for budget 'b' of this store"
    else:
        assert isinstance(said, Deny | Ask)
        assert "$0.90 spent and $0.05 reserved of $1.00, and this call reserves $0.10" in said.why


def test_a_call_larger_than_the_budget_does_not_wait_for_another_window() -> None:
    known = budgets('[[budget]]\nname="b"\nscope="store"\nper="hour"\nusd=1\non="wait"')
    call = call_of(step("pay"), cents=200)
    (found,) = known.reserves(step("pay"), call)
    assert isinstance(known.over(step("pay"), call, over(found.account, 2_000_000)), Deny)


def test_accounts_of_others_are_left_to_them() -> None:
    known = budgets(ALL)
    call = call_of(step("buy"))
    assert known.over(step("buy"), call, over("limit/x")) is None
    assert known.settles(step("buy"), call, (Reserve("limit/x", {"calls": 1}),), b"1", {}) == ()


# What a call has spent --------------------------------------------------------------------------------

ANSWER = b'{"model":"m","usage":{"input_tokens":10,"output_tokens":20}}'
UNKNOWN = ANSWER.replace(b'"m"', b'"new"')
MONEY = '[[budget]]\nname="b"\nscope="store"\nusd=1\ntokens=1000\n'


def spent(
    outcome: bytes | BaseException | None, charged: dict[str, int], held: dict[str, int]
) -> dict[str, int]:
    known, ask = budgets(MONEY, price), step("ask")
    call = call_of(ask, prompt="hi")
    (found,) = known.settles(ask, call, (Reserve("budget/b/all/store", held),), outcome, charged)
    assert found == Settle("budget/b/all/store", held, found.spent)
    return found.spent


HELD = {"usd": 500, "tokens": 50}


@pytest.mark.parametrize(
    ("outcome", "charged", "wanted"),
    [
        (ANSWER, {}, {"usd": 220, "tokens": 30}),
        (UNKNOWN, {}, {"usd": 500, "tokens": 30, "unpriced": 1}),
        (b'"no usage"', {}, HELD),
        (b'"x"', {"usd": 7, "tokens": 3}, {"usd": 7, "tokens": 3}),
        (b'"x"', {"usd": 0}, {"tokens": 50}),
        (ANSWER, {"usd": 900}, {"usd": 900, "tokens": 30}),
        (b'"x"', {"in m": 1, "out m": 2, "tokens": 3}, {"usd": 22, "tokens": 3}),
        (b'"x"', {"in new": 1, "out new": 2, "tokens": 3}, {"usd": 500, "tokens": 3, "unpriced": 1}),
        (b'"x"', {"in new": 1, "usd": 600}, {"usd": 600, "tokens": 50, "unpriced": 1}),
        (ValueError("x"), {}, {**HELD, "presumed": 1}),
        (ValueError("x"), {"usd": 3, "tokens": 1}, {"usd": 3, "tokens": 1}),
        (NotDone("x"), {}, {}),
        (NotDone("x"), {"usd": 3}, {"usd": 3}),
        (None, {}, {**HELD, "presumed": 1}),
        (None, {"usd": 900, "tokens": 1}, {"usd": 900, "tokens": 50, "presumed": 1}),
    ],
)
def test_a_call_has_spent_what_is_known_else_what_it_reserved(
    outcome: bytes | BaseException | None, charged: dict[str, int], wanted: dict[str, int]
) -> None:
    assert spent(outcome, charged, HELD) == wanted


def test_time_is_measured() -> None:
    known, look = budgets('[[budget]]\nname="b"\nscope="store"\nseconds=60'), step("look")
    call = call_of(look)
    reserved = known.reserves(look, call)
    assert reserved[0].amounts == {"seconds": 2500}
    (found,) = known.settles(look, call, reserved, b"null", {})
    assert found.spent == {"seconds": 250}


def test_a_compensation_is_counted_and_never_refused() -> None:
    known, pay = budgets('[[budget]]\nname="b"\nscope="store"\nusd=1\nactions=1'), step("pay")
    call = call_of(pay, cents=300, kind="compensation")
    reserved = known.reserves(pay, call)
    assert [one.amounts for one in reserved] == [{}]
    (found,) = known.settles(pay, call, reserved, b"null", {})
    assert found == Settle("budget/b/all/store", {}, {"usd": 3_000_000, "actions": 1})


def test_what_a_body_charges_is_kept_until_it_is_priced() -> None:
    assert costs.charges(usd=0.01, tokens=5) == {"usd": 10_000, "tokens": 5}
    assert costs.charges(usd=0) == {"usd": 0}
    assert costs.charges() == {}
    charged = costs.charges(tokens_in=3, tokens_out=4, model="m 1")
    assert charged == {"tokens": 7, "in m 1": 3, "out m 1": 4}
    assert costs.charged_models(charged) == {"m 1": (3, 4)}
    with pytest.raises(UsageError):
        costs.charges(tokens=-1)


@pytest.mark.parametrize(
    ("meter", "amount", "text"),
    [
        ("usd", 1_250_000, "$1.25"),
        ("usd", 1, "$0.000001"),
        ("tokens", 1200, "1,200 tokens"),
        ("actions", 1, "1 action"),
        ("seconds", 36_500, "36.5 seconds"),
    ],
)
def test_amounts_are_shown_for_people(meter: str, amount: int, text: str) -> None:
    assert costs.shown(meter, amount) == text
