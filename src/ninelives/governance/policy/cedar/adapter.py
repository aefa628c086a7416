"""Judges calls by Cedar policies. Principal: Agent::"name"; action: Action::"name"; resource: Tool::"name".

The context has `args` and the facts of the call (`schema`). Cedar skips a policy that fails, also one that
forbids, and decides without it: so whatever Cedar reports as an error is an error here, and never an allow.
A `forbid` with the annotation `@advice("ask")`, and `@to("role:ops")`, asks a person instead of denying, if
nothing else forbids the call and something permits it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ninelives.core.errors import InvariantViolation, UsageError
from ninelives.core.governance.verdicts import Allow, Ask, Call, Deny, Judgement
from ninelives.governance.policy.canary import must
from ninelives.governance.policy.cedar.schema import context_of, schema_of
from ninelives.governance.policy.declared import Declaration, Declarations
from ninelives.governance.policy.file import digest_of
from ninelives.governance.policy.language.errors import Unanswerable
from ninelives.governance.policy.protocol import failed

_ASK: Final = "ask"
_CANARY: Final = """
@id("all") permit(principal, action, resource);
@id("word") forbid(principal, action, resource) when { context.word == "must be denied" };
"""


class Cedar:
    """Policies in Cedar, from a file or a text (one with a line break or a semicolon)."""

    tables: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self, given: str | Path, *, name: str = "", steps: Iterable[Declaration] | None = None
    ) -> None:
        is_text = isinstance(given, str) and ("\n" in given or ";" in given)
        self.name = name or ("cedar" if is_text else Path(given).name)
        self.text = str(given) if is_text else _read(Path(given))
        self.digest = digest_of(self.text)
        self._cedar = _library()
        self._steps = list(steps) if steps is not None else None
        self._declared: Declarations | None = None
        self._schema: Any = None
        self._parse()

    def judge(self, call: Call) -> Judgement:
        """Return Cedar's verdict on a call."""
        try:
            return self._judge(call)
        except (KeyboardInterrupt, InvariantViolation):
            raise
        except Unanswerable as error:
            return self._failed(str(error))
        except BaseException as error:  # noqa: BLE001 - the library, and arguments' own code, may raise anything
            return self._failed(f"{type(error).__name__}")

    def prove(self) -> None:
        """Validate the policies against all actions, and prove that Cedar denies. Raises UsageError."""
        self._declared = Declarations(self._steps)
        schema = schema_of(self._declared)
        checked = self._cedar.validate_policies(self.text, schema)
        if not checked.validation_passed:
            faults = "; ".join(str(one.error) for one in checked.errors[:3])
            remedy = "Policies may read context.args and the facts of the call, with their types"
            raise UsageError(f"the policies {self.name} do not fit the actions: {faults}", remedy=remedy)
        self._schema = self._cedar.Schema.from_json_str(json.dumps(schema))
        policies = self._cedar.PolicySet.from_str(_CANARY)
        call = Call(action="canary", kind="action", args={}, run="canary", agent="canary")
        for context, what in (
            ({"word": "must be denied"}, "denied"),
            ({"word": "another"}, "allowed"),
            ({}, "refused"),  # the condition fails: Cedar itself says "Allow"
        ):
            must(self._said(call, self._ask(policies, call, context, None)), what, self.name)

    def _parse(self) -> None:
        try:
            self._policies = self._cedar.PolicySet.from_str(self.text)
            tree = json.loads(self._cedar.policies_to_json_str(self.text))
        except (ValueError, TypeError) as error:
            raise UsageError(f"{self.name} is not Cedar: {error}", remedy="Correct the policy") from None
        if tree.get("templates") or tree.get("templateLinks"):
            raise UsageError(
                f"{self.name} has templates", remedy="Write plain policies: nothing links templates"
            )
        policies = tree.get("staticPolicies", {})
        if not policies:
            raise UsageError(f"{self.name} has no policies", remedy="Write some: without any, all is denied")
        self._notes: dict[str, dict[str, str]] = {
            known: one.get("annotations") or {} for known, one in policies.items()
        }
        for known, notes in self._notes.items():
            advice = notes.get("advice")
            if advice is not None and (advice != _ASK or policies[known]["effect"] != "forbid"):
                what = f"{self.name}: @advice({advice!r}) of {notes.get('id', known)!r}"
                raise UsageError(what, remedy='Write @advice("ask") before a forbid')
        rest = {known: one for known, one in policies.items() if self._notes[known].get("advice") != _ASK}
        self._without_asking: Any = None
        if len(rest) < len(policies):
            self._without_asking = self._cedar.PolicySet.from_json_str(
                json.dumps({"staticPolicies": rest, "templates": {}, "templateLinks": []})
            )

    def _judge(self, call: Call) -> Judgement:
        to = self._declared.find(call.action, call.kind) if self._declared is not None else None
        if to is None or self._schema is None:
            return self._failed(f"no {call.kind} {call.action!r} was declared when it was checked")
        context = context_of(call, to)
        found = self._ask(self._policies, call, context, self._schema)
        said = self._said(call, found)
        reasons = found.diagnostics.reasons
        asks = [one for one in reasons if self._notes.get(one, {}).get("advice") == _ASK]
        if said.error or type(said.verdict) is Allow or not asks or len(asks) < len(reasons):
            return said
        # A forbid that asks must not open what nothing permits.
        without = self._said(call, self._ask(self._without_asking, call, context, self._schema))
        if without.error or type(without.verdict) is not Allow:
            return without
        to_whom = sorted({self._notes[one].get("to", "") for one in asks})
        if len(to_whom) > 1:
            return self._failed(f"policies ask different people: {', '.join(to_whom)}")
        return Judgement(Ask(to_whom[0], f"{', '.join(said.rules)} asks"), said.rules, self.digest)

    def _ask(self, policies: Any, call: Call, context: dict[str, Any], schema: Any) -> Any:
        request = {
            "principal": {"type": "Agent", "id": call.agent},
            "action": {"type": "Action", "id": call.action},
            "resource": {"type": "Tool", "id": call.action},
            "context": context,
        }
        return self._cedar.is_authorized(request, policies, [], schema)

    def _said(self, call: Call, found: Any) -> Judgement:
        diagnostics = found.diagnostics
        if diagnostics.errors:
            return self._failed(f"Cedar reports {len(diagnostics.errors)} errors about {call.action!r}")
        reasons = diagnostics.reasons
        rules = tuple(self._notes.get(one, {}).get("id") or one for one in reasons)
        if found.decision is self._cedar.Decision.Allow and reasons:
            return Judgement(Allow(), rules, self.digest)
        if found.decision is self._cedar.Decision.Deny:
            why = f"{', '.join(rules)} forbids it" if rules else f"nothing in {self.name} permits it"
            return Judgement(Deny(why), rules, self.digest)
        return self._failed("Cedar gave no decision")

    def _failed(self, why: str) -> Judgement:
        return failed(self.digest, (), f"the policy {self.name!r} could not judge the call: {why}")


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        remedy = "Name a file with Cedar policies"
        raise UsageError(f"the policy {path} cannot be read: {error}", remedy=remedy) from None


def _library() -> Any:
    try:
        import cedarpy
    except ModuleNotFoundError:
        raise UsageError("Cedar needs cedarpy", remedy="pip install 'ninelives[cedar]'") from None
    return cedarpy
