"""Policies in Cedar, with the real library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ninelives.core.errors import UsageError
from ninelives.core.governance.verdicts import Allow, Ask, Deny
from ninelives.governance.policy.cedar import Cedar
from ninelives.governance.policy.combined import open_policies
from tests.governance.policy_shop import Order, call, policy, steps

SHOP = """
@id("shop") permit(principal == Agent::"support", action, resource)
    when { !context.taint.contains("web") };
@id("known") forbid(principal, action == Action::"refund", resource)
    when { context.args.order == "bad" };
@id("large") @advice("ask") @to("role:ops") forbid(principal, action == Action::"refund", resource)
    when { context.args.cents > 1000 };
@id("wires") forbid(principal, action == Action::"wire", resource)
    when { context.args.amount.greaterThan(decimal("100.0")) && context.labels.contains("tenant=acme") };
@id("heavy") forbid(principal, action == Action::"ship", resource)
    when { context.args.tags.contains("heavy") && context.args.order.cents > 500
           && context.args.colour == "red" && !(context.args.order has note) };
@id("old") forbid(principal, action == Action::"search", resource)
    when { context has now && context.now < datetime("2026-01-01") };
"""


def loaded(text: str = SHOP) -> Cedar:
    made = Cedar(text, steps=steps())
    made.prove()
    return made


def test_cedar_permits_forbids_and_asks() -> None:
    found = loaded()
    allowed = found.judge(call("refund"))
    assert (type(allowed.verdict), allowed.rules, allowed.policy) == (Allow, ("shop",), found.digest)
    denied = found.judge(call("refund", {"order": "bad", "cents": 5000}))
    assert type(denied.verdict) is Deny, "a plain forbid beside one that asks"
    asked = found.judge(call("refund", {"cents": 5000}))
    assert asked.verdict == Ask("role:ops", "large asks")
    nobody = found.judge(call("refund", {"cents": 5000}, agent="other"))
    assert type(nobody.verdict) is Deny, "what nothing permits is not opened by asking"
    assert type(found.judge(call("refund", taint=frozenset({"web"}))).verdict) is Deny


def test_arguments_have_their_types() -> None:
    found = loaded()
    acme = {"tenant": "acme"}
    assert type(found.judge(call("wire", {"amount": 101}, labels=acme)).verdict) is Deny
    assert type(found.judge(call("wire", {"amount": 101})).verdict) is Allow
    assert type(found.judge(call("ship")).verdict) is Deny
    assert type(found.judge(call("ship", {"order": Order("o", 9)})).verdict) is Allow
    assert type(found.judge(call("ship", {"order": Order("o", 900, [], "x")})).verdict) is Allow
    assert type(found.judge(call("search", now=None)).verdict) is Allow
    assert type(found.judge(call("enrol")).verdict) is Allow
    assert type(found.judge(call("ask_model")).verdict) is Allow
    assert type(found.judge(call("helper")).verdict) is Allow


@pytest.mark.parametrize(
    ("action", "args", "why"),
    [
        ("refund", {"cents": "5000"}, "is str, not int"),
        ("refund", {"cents": 2**63}, "64-bit"),
        ("wire", {"amount": "0.1"}, "is str, not Decimal"),
        ("ship", {"tags": ["heavy", 3]}, "is int, not str"),
        ("ship", {"order": {"cents": 3}}, "is dict, not Order"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(action: str, args: dict[str, Any], why: str) -> None:
    assert why in loaded().judge(call(action, args)).error


def test_a_condition_that_fails_is_an_error_although_cedar_itself_would_allow() -> None:
    text = 'permit(principal, action, resource);\nforbid(principal, action == Action::"refund", resource)'
    overflow = loaded(text + " when { context.args.cents * 9000000000000000000 > 5 };")
    found = overflow.judge(call("refund", {"cents": 9}))
    assert type(found.verdict) is Deny
    assert "Cedar reports 1 errors" in found.error


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("permit(principal, action, resource)", "is not Cedar"),
        ("permit(principal, action, resource) when { context.args.cents > 3 };", "do not fit the actions"),
        (
            'permit(principal, action == Action::"refund", resource) when { context.args.amont > 3 };',
            "do not fit the actions",
        ),
        ('permit(principal, action == Action::"refnd", resource);', "do not fit the actions"),
        (
            'permit(principal, action == Action::"database", resource) when { context.args.rows > 3 };',
            "do not fit the actions",
        ),
        ('@advice("ask") permit(principal, action, resource);', "@advice"),
        ('@advice("tell") forbid(principal, action, resource);', "@advice"),
        ("permit(principal == ?principal, action, resource);", "templates"),
        ("// nothing\n", "has no policies"),
    ],
)
def test_policies_that_do_not_fit_are_refused_before_any_call(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        loaded(text if "\n" in text else text + "\n")


def test_cedar_beside_other_policies(tmp_path: Path) -> None:
    path = tmp_path / "shop.cedar"
    path.write_text(SHOP, encoding="utf-8")
    file = policy('actions = ["*"]\ndo = "allow"')
    found = open_policies([Cedar(path, steps=steps()), file], steps())
    assert type(found.judge(call("refund")).verdict) is Allow
    assert found.judge(call("refund", {"cents": 5000})).verdict == Ask("role:ops", "large asks")
    with pytest.raises(UsageError, match="cannot be read"):
        Cedar(tmp_path / "none.cedar")


def test_an_action_that_was_not_checked_is_an_error() -> None:
    unchecked = Cedar(SHOP, steps=steps())
    assert "was declared when it was checked" in unchecked.judge(call("refund")).error


def test_a_cedar_that_ignores_errors_keeps_the_process_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    import cedarpy

    monkeypatch.setattr(cedarpy.Diagnostics, "errors", property(lambda _: []))
    with pytest.raises(UsageError, match="a call that must be refused got 'allow'"):
        loaded()
