"""Conditions: what they mean, what is refused at load, and what cannot be evaluated."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ninelives.core.errors import UsageError
from ninelives.core.governance.verdicts import Allow, Deny
from ninelives.governance.policy.judge import load_policy
from ninelives.governance.policy.language import globs
from tests.governance.policy_shop import Line, Order, call, policy, steps


def verdict(
    action: str, when: str, args: dict[str, Any] | None = None, *, head: str = "", **facts: Any
) -> str:
    """Return what a rule with this condition makes of a call: "applies", "not", or why it has no answer."""
    rule = f'actions = ["{action}"]\nkinds = ["{facts.get("kind") or call(action).kind}"]\ndo = "deny"\n'
    text = policy(rule + f"when = {json.dumps(when)}\n", default="allow", head=head)
    found = load_policy(text, steps()).judge(call(action, args, **facts))
    if found.error:
        assert type(found.verdict) is Deny
        return found.error
    return "applies" if type(found.verdict) is Deny else "not"


APPLY = [
    ("refund", "cents == 500"),
    ("refund", "400 < cents <= 500"),
    ("refund", "args.cents + 1 == 501 and cents * 2 == 1_000 and cents - 100 == 400 and cents / 2 == 250"),
    ("refund", "cents % 7 == 3 and -cents < 0 and abs(-cents) == 500"),
    ("refund", "not (cents > 500 or currency == 'USD')"),
    ("refund", "order in ['o-1', 'o-2'] and order not in ('x',)"),
    ("refund", "currency in {'EUR'}"),
    ("refund", "len(order) == 3 and order.startswith('o-') and endswith(order, ('-1', '-2'))"),
    ("refund", "glob(order, 'o-?') and contains(order, '-') and 'o' in order"),
    ("refund", "upper(order) == 'O-1' and order.lower() == 'o-1' and strip(order) == order"),
    ("wire", "amount == 10.1 and amount > 10 and amount < 10.2 and amount * 2 == 20.2"),
    ("wire", "memo is None and memo != 'x' and not memo == 'x'"),
    ("wire", "at == now and at < datetime('2026-03-08') and now - at < hours(1)"),
    ("wire", "at.date == date('2026-03-07') and at.weekday == 'sat' and at.year == 2026 and at.minute == 30"),
    ("database", "operation == 'drop' and operation != 'read' and rows == 5 and rows >= 4.5"),
    ("query", "folded(sql) == 'drop table users' and 'drop' in sql.lower()"),
    ("ship", "order.cents == 700 and order.note is None and address.country == 'de'"),
    (
        "ship",
        "any(line.count > 10 for line in order.lines) and not all(line.sku == 'a' for line in order.lines)",
    ),
    (
        "ship",
        "any(one.count > 10 and order.cents == 700 for one in order.lines) and order.lines[0].sku == 'a'",
    ),
    ("ship", "colour == 'red' and colour != 'BLUE' and colour in ['RED']"),
    ("ship", "'heavy' in tags and 'light' not in tags and len(tags) == 2 and tags[0] == 'new'"),
    ("enrol", "person.age == 36 and person.name == 'Ada' and point.y == -2"),
    ("enrol", "options.depth == 3 and options['depth'] == 3 and options.mode is None"),
    ("enrol", "numbers['a'] == 1 and 'a' in numbers and numbers['z'] is None"),
    ("untyped", "thing == 5 and thing > 4 and thing in [1, 5] and other is None"),
    ("search", "kind == 'read' and action == 'search' and agent == 'support' and run == 'run-1'"),
    ("search", "depth == 0 and turn == 0 and parent is None and resumable and not reads_only"),
    ("search", "call.agent == 'support' and key == ''"),
    ("search", "not tainted() and not tainted('web') and 'web' not in taint and len(taint) == 0"),
    ("search", "'tenant' not in labels and labels.tenant is None"),
    ("search", "now.weekday in ['sat', 'sun'] and now.hour == 12 and now.month == 3 and now.day == 7"),
    ("helper", "args.depth == 1 and call.depth == 0 and topic == 'x'"),
]


@pytest.mark.parametrize(("action", "when"), APPLY)
def test_a_condition_means_what_it_says(action: str, when: str) -> None:
    assert verdict(action, when) == "applies"
    assert verdict(action, f"not ({when})") == "not"


REFUSED = [
    ("refund", "amont > 3", "'amont' is no argument of 'refund'"),
    ("refund", "cent > 3", "Did you mean 'cents'?"),
    ("refund", "currency == 'EUR' && cents > 3", "Write and for &&"),
    ("refund", "!(cents > 3) || cents != 4", "Write or for ||, not for !"),
    ("refund", "true", "Write True"),
    ("refund", "order != null", "Write None"),
    ("refund", "args.cent > 3", "Did you mean 'cents'?"),
    ("refund", "cents > '3'", "compares int with str: it can never be true"),
    ("refund", "cents != '3'", "it is always true"),
    ("refund", "cents == True", "compares int with bool"),
    ("refund", "cents == 1.5", "can never be true"),
    ("refund", "cents.value > 3", "which has no field 'value'"),
    ("refund", "cents", "neither true nor false"),
    ("refund", "cents and order", "neither true nor false"),
    ("refund", "True", "always true"),
    ("refund", "1 < 2", "compares two constants"),
    ("refund", "cents > 5 and cents < 5", "what it says of cents can never be true"),
    ("refund", "order == 'a' and order == 'b'", "cannot be both"),
    ("refund", "cents is None", "never None"),
    ("refund", "cents is 3", "`is` compares only with None"),
    ("refund", "cents in []", "nothing is in an empty list"),
    ("refund", "order in [1]", "compares str with int"),
    ("refund", "currency == 'EURO'", "Did you mean 'EUR'?"),
    ("refund", "currency in ['EUR', 'GBP']", "currency == 'GBP' can never be true"),
    ("refund", "currency != 'GBP'", "is always true"),
    ("refund", "len(order) < 0", "can never be true"),
    ("refund", "len(cents) == 1", "len() of int"),
    ("refund", "lower(cents) == 'a'", "lower() of int"),
    ("refund", "lowr(order) == 'a'", "Did you mean 'lower'?"),
    ("refund", "order.startwith('a')", "Did you mean 'startswith'?"),
    ("refund", "startswith(order)", "takes 2 values, not 1"),
    ("refund", "startswith(order, '')", "every text has the empty text in it"),
    ("refund", "order contains 'drop'", "not an expression"),
    ("refund", "__import__('os')", "there is no function '__import__'"),
    ("refund", "().__class__", "which has no field '__class__'"),
    ("refund", "order.__class__ == 'x'", "which has no field '__class__'"),
    ("refund", "cents ** 9 > 1", "Pow is not part of the language"),
    ("refund", "cents == 10 ** 10 ** 10", "not part of the language"),
    ("refund", "(lambda: 1)() == 1", "no function of the language"),
    ("refund", "[x for x in order] == 1", "ListComp is not part of the language"),
    ("refund", "f'{cents}' == 'a'", "not part of the language"),
    ("refund", "(x := 3) > cents", "not part of the language"),
    ("refund", "cents == 1e999", "infinite"),
    ("refund", "cents == " + "9" * 1900, "too large"),
    ("refund", "cents == " + "9" * 4000, "over the limit"),
    ("refund", "not " * 100 + "resumable", "levels"),
    ("refund", " or ".join(["cents == 1"] * 100), "parts"),
    ("refund", "tainted(order)", "written in the rule"),
    ("refund", "spent('day') > 1", "no budget 'day'"),
    ("refund", "now.hour > 24", "can never be true"),
    ("refund", "now.weekday == 'Saturday'", "can never be true"),
    ("refund", "now.minutes == 1", "Did you mean 'minute'?"),
    ("refund", "kind == 'acton'", "Did you mean 'action'?"),
    ("refund", "action == 'refnd'", "Did you mean 'refund'?"),
    ("refund", "labels == 'x'", "cannot be compared"),
    ("refund", "any(cents > 3)", "takes a condition for each item"),
    ("refund", "any(x == 'a' for x in order)", "not a list"),
    ("wire", "amount > rows", "no argument"),
    ("wire", "amount + 0.1 > 1", "Decimal and float"),
    ("wire", "at > '2026-01-01'", "datetime('2026-01-01')"),
    ("wire", "at > datetime('soon')", "Invalid isoformat"),
    ("ship", "order.nte is None", "Did you mean 'note'?"),
    ("ship", "order == 'o-1'", "Compare one of its fields"),
    ("ship", "colour == 'green'", "no member of Colour"),
    ("ship", "colour > 'red'", "no order"),
    ("ship", "address.country == 'it'", "can never be true"),
    ("ship", "any(line.cout > 1 for line in order.lines)", "Did you mean 'count'?"),
    ("ship", "any(order == 'a' for order in tags)", "another meaning"),
    ("enrol", "person.agge > 3", "Did you mean 'age'?"),
    ("enrol", "options.deep == 3", "Did you mean 'depth'?"),
    ("helper", "depth == 1", "Write args.depth for the argument, or call.depth"),
]


@pytest.mark.parametrize(("action", "when", "why"), REFUSED)
def test_what_cannot_mean_anything_is_refused_at_load(action: str, when: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        verdict(action, when)
    assert why in str(refused.value)
    assert str(refused.value).startswith("the policy:10: rule 'r1': ")
    assert refused.value.remedy


class Hostile(str):
    """A text that claims to be equal to nothing."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


class Raising:
    @property
    def cents(self) -> int:
        raise SystemExit("out")


NAN, BIG = float("nan"), 10**5000
MIXED: list[Any] = [Line("a", 1), 3]
UNANSWERABLE = [
    ("refund", "cents > 1000", {"cents": "5,000"}, "the argument 'cents' is str, not int"),
    ("refund", "cents == 5000", {"cents": "5000"}, "is str, not int"),
    ("refund", "cents > 1000", {"cents": None}, "is NoneType, not int"),
    ("refund", "cents > 1000", {"cents": True}, "is bool, not int"),
    ("refund", "cents > 1000", {"cents": NAN}, "not a number"),
    ("refund", "cents * cents > 1", {"cents": BIG}, "more than 4096 bits"),
    ("refund", "currency == 'USD'", {"currency": "usd"}, "none of the values"),
    ("refund", "order == 'x'", {"order": "a" * 1_000_001}, "longer than 1,000,000 characters"),
    ("refund", "folded(order) == 'x'", {"order": "a" * 200_000}, "more than 100,000 characters"),
    ("refund", "labels.tenant == 'acme'", {}, "the run has no label 'tenant'"),
    ("refund", "labels.tenant != 'acme'", {}, "the run has no label 'tenant'"),
    ("refund", "cents / (cents - 500) > 1", {}, "ZeroDivisionError"),
    ("wire", "amount > 1", {"amount": Decimal("NaN")}, "not a number"),
    ("wire", "amount > 1", {"amount": 1.5}, "is float, not Decimal"),
    ("wire", "memo > 'a'", {}, "NoneType"),
    ("wire", "memo.startswith('a')", {}, "NoneType"),
    ("wire", "at < now", {"at": dt.datetime(2026, 1, 1)}, "compare offset-naive"),  # noqa: DTZ001
    ("wire", "now.hour > 3", {}, "now is NoneType"),
    ("database", "rows > 3", {"rows": NAN}, "not a number"),
    ("ship", "order.cents > 3", {"order": {"cents": 9}}, "is dict, not Order"),
    ("ship", "order.cents > 3", {"order": Raising()}, "is Raising, not Order"),
    ("ship", "order.cents > 3", {"order": Order("x", "9")}, "order.cents is str, not int"),  # type: ignore[arg-type]
    ("ship", "any(line.count > 3 for line in order.lines)", {"order": Order("x", 9, MIXED)},
     "is int, not Line"),
    ("ship", "any(line.count > 3 for line in order.lines)", {"order": Order("x", 9, [Line("a", 1)] * 10_001)},
     "more than 10,000 items"),
    ("ship", "'heavy' in tags", {"tags": ["heavy", 3]}, "is int, not str"),
    ("ship", "tags[5] == 'a'", {}, "there is no tags[5]"),
    ("enrol", "numbers['z'] == 1", {}, "there is no numbers['z']"),
    ("enrol", "options.mode == 'x'", {}, "options has no 'mode'"),
    ("untyped", "thing == 'a'", {}, "compares int with str"),
    ("untyped", "thing > 3", {"thing": None}, "orders None"),
    ("untyped", "thing in ['a']", {}, "compares int with other sorts"),
    ("untyped", "thing > 3", {"thing": NAN}, "not a number"),
]  # fmt: skip


@pytest.mark.parametrize(("action", "when", "args", "why"), UNANSWERABLE)
def test_a_rule_that_cannot_be_evaluated_is_an_error_and_never_an_allow(
    action: str, when: str, args: dict[str, Any], why: str
) -> None:
    found = verdict(action, when, args, now=None) if "now.hour" in when else verdict(action, when, args)
    assert why in found
    assert "5,000" not in found, "values are not shown: errors are recorded"


def test_a_subclass_cannot_answer_for_its_base() -> None:
    assert verdict("refund", "order == 'o-9'", {"order": Hostile("o-9")}) == "applies"


def test_a_guard_keeps_a_rule_answerable() -> None:
    guarded = "'tenant' in labels and labels.tenant == 'acme'"
    assert verdict("refund", guarded) == "not"
    assert verdict("refund", guarded, labels={"tenant": "acme"}) == "applies"
    assert verdict("wire", "memo is not None and memo.startswith('a')") == "not"
    assert verdict("wire", "memo is not None and memo.startswith('a')", {"memo": "abc"}) == "applies"


def test_now_is_in_the_time_zone_of_the_policy() -> None:
    late = dt.datetime(2026, 3, 7, 23, 30, tzinfo=dt.UTC)
    berlin = 'timezone = "Europe/Berlin"'
    assert verdict("search", "now.weekday == 'sun' and now.hour == 0", head=berlin, now=late) == "applies"
    assert verdict("search", "now.weekday == 'sun'", now=late) == "not"
    with pytest.raises(UsageError, match="no time zone"):
        verdict("search", "now.hour == 3", head='timezone = "Berlin"')


def test_taint_is_read() -> None:
    web = frozenset({"web"})
    assert verdict("query", "tainted('web') and tainted() and 'web' in taint", taint=web) == "applies"
    assert verdict("query", "tainted('mail')", taint=web) == "not"


@pytest.mark.parametrize(
    ("pattern", "fits", "others"),
    [
        ("mail_*", ["mail_", "mail_send"], ["email_send", "mail"]),
        ("*", ["", "x"], []),
        ("a*b?c", ["abxc", "a--bxc", "abbxc"], ["abc", "abxcd", "xabxc"]),
        ("?", ["x"], ["", "xy"]),
        ("*a*a*", ["aa", "xaxax"], ["a"]),
        ("plain", ["plain"], ["Plain", "plainer"]),
    ],
)
def test_patterns(pattern: str, fits: list[str], others: list[str]) -> None:
    assert [one for one in fits if not globs.fits(one, pattern)] == []
    assert [one for one in others if globs.fits(one, pattern)] == []


def test_a_pattern_that_would_take_a_regex_hours_takes_no_time() -> None:
    assert verdict("query", f"glob(sql, '{'*a' * 40}*b')", {"sql": "a" * 100_000}) == "not"


def test_each_rule_is_checked_against_each_action_that_it_names() -> None:
    with pytest.raises(UsageError, match="'cents' is no argument of"):
        load_policy(policy('actions = ["*"]\nkinds = ["action"]\ndo = "deny"\nwhen = "cents > 3"'), steps())
    found = load_policy(policy('actions = ["*"]\ndo = "allow"\nwhen = "agent == \'support\'"'), steps())
    for action in ("refund", "search", "ask_model", "helper"):
        assert type(found.judge(call(action)).verdict) is Allow


def test_the_line_of_a_fault_is_named(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    good = 'actions = ["refund"]\ndo = "allow"'
    file.write_text(policy(good, f'{good}\nwhen = "cents >"', good), encoding="utf-8")
    with pytest.raises(UsageError, match=rf"{file}:13: rule 'r2': it is not an expression"):
        load_policy(file, steps())
