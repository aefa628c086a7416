"""Policies of the Agent Control Specification, with its released engine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ninelives.core.errors import UsageError
from ninelives.core.governance.verdicts import Allow, Ask, Deny, Rewrite
from ninelives.governance.policy.acs import AgentControl
from ninelives.governance.policy.acs import adapter as adapting
from ninelives.governance.policy.combined import open_policies
from tests.governance.policy_shop import call, policy, steps

Judge = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def manifest(path: Path, **changes: Any) -> Path:
    """Write a manifest whose tools are three of the shop's actions."""
    text = json.loads(json.dumps(adapting._CANARY))
    text["tools"] = {name: {"type": "Tool", "id": name} for name in ("refund", "ship", "wire")} | {
        "canary": {"type": "Tool", "id": "canary"}
    }
    (path / "manifest.json").write_text(json.dumps(text | changes), encoding="utf-8")
    return path / "manifest.json"


def loaded(path: Path, custom: Judge, **options: Any) -> AgentControl:
    made = AgentControl(manifest(path), custom=custom, steps=steps(), **options)
    made.prove()
    return made


def test_each_decision_becomes_its_verdict(tmp_path: Path) -> None:
    seen: list[Mapping[str, Any]] = []

    def custom(invocation: Mapping[str, Any]) -> Mapping[str, Any]:
        seen.append(invocation["input"])
        cents = invocation["input"]["policy_target"]["value"]["cents"]
        if cents > 10_000:
            return {"decision": "deny", "reason": "far too much"}
        if cents > 5_000:
            return {"decision": "escalate", "reason": "much"}
        if cents > 1_000:
            return {"decision": "transform", "transform": {"path": "$policy_target.cents", "value": 1_000}}
        return {"decision": "warn", "message": "noted"} if cents > 500 else {"decision": "allow"}

    found = open_policies(loaded(tmp_path, custom))
    amounts = (5, 900, 20_000, 9_000, 2_000)
    assert [found.judge(call("refund", {"cents": cents})).verdict for cents in amounts] == [
        Allow(),
        Allow("noted"),
        Deny("far too much"),
        Ask(why="much"),
        Rewrite({"cents": 1_000}),
    ]
    assert seen[0]["snapshot"]["tool_call"]["args"] == {"order": "o-1", "cents": 5, "currency": "EUR"}
    assert found.judge(call("refund", taint=frozenset({"web"}))).policy == found.digest
    assert seen[-1]["snapshot"]["security"] == {"labels": ["web"]}


def test_arguments_are_judged_as_their_annotations_write_them(tmp_path: Path) -> None:
    seen: list[Any] = []

    def custom(invocation: Mapping[str, Any]) -> Mapping[str, Any]:
        seen.append(invocation["input"]["policy_target"]["value"])
        return {"decision": "allow"}

    found = loaded(tmp_path, custom)
    assert type(found.judge(call("ship")).verdict) is Allow
    assert seen[-1]["order"]["lines"][1] == {"sku": "b", "count": 20}
    assert type(found.judge(call("wire")).verdict) is Allow


ERRORS: dict[str, Any] = {
    "policy_output_invalid": lambda _: {"decision": "maybe"},
    "policy_invocation_failed": lambda _: 1 / 0,
    "policy_output_invalid ": lambda _: {},
    "transforms something else": lambda _: {
        "decision": "transform", "transform": {"path": "$policy_target.other", "value": 3}
    },
    "does not fit": lambda _: {
        "decision": "transform", "transform": {"path": "$policy_target.cents", "value": "3"}
    },
}  # fmt: skip


@pytest.mark.parametrize("why", ERRORS)
def test_what_fails_in_the_engine_is_an_error(why: str, tmp_path: Path) -> None:
    found = loaded(tmp_path, ERRORS[why]).judge(call("refund"))
    assert type(found.verdict) is Deny
    assert found.error
    assert why.strip() in found.error or "runtime_error" in found.error


def test_what_the_manifest_or_the_process_does_not_know_is_an_error(tmp_path: Path) -> None:
    found = loaded(tmp_path, lambda _: {"decision": "allow"})
    assert "runtime_error:tool_unknown" in found.judge(call("query")).error
    assert found.judge(call("refund", {"cents": "5"})).error
    assert "was declared when" in found.judge(call("refund", kind="spawn")).error
    # Numbers beyond 64 bits do not reach the engine as they are.
    assert found.judge(call("refund", {"cents": 10**30})).error


def test_a_policy_that_hangs_is_an_error(tmp_path: Path) -> None:
    release = threading.Event()
    found = loaded(tmp_path, lambda _: (release.wait() and {}) or {}, timeout=0.05)
    assert "gave no verdict" in found.judge(call("refund")).error
    release.set()


def test_a_manifest_that_cannot_judge_calls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be used"):
        AgentControl(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="cannot be used"):
        AgentControl(manifest(tmp_path))  # a custom policy without a function that judges for it
    # The released engine has no Cedar of its own.
    cedar = {"type": "cedar", "policy_set": "permit(principal, action, resource);"}
    path = manifest(tmp_path, policies={"canary": cedar})
    with pytest.raises(UsageError, match="cannot be used"):
        AgentControl(path)
    point = {"policy_target": "$snap.input", "policy_target_kind": "user_input", "policy": {"id": "canary"}}
    path = manifest(tmp_path, intervention_points={"input": point})
    made = AgentControl(path, custom=lambda _: {}, steps=steps())
    with pytest.raises(UsageError, match="has no pre_tool_call"):
        made.prove()


def test_beside_a_file_the_strictest_wins(tmp_path: Path) -> None:
    allows = loaded(tmp_path, lambda _: {"decision": "allow"})
    denies = policy('actions = ["refund"]\ndo = "deny"\nwhen = "cents > 100"', default="allow")
    assert type(open_policies([allows, denies], steps()).judge(call("refund")).verdict) is Deny
