"""Judges calls by the reference engine of the Agent Control Specification, at its point `pre_tool_call`.

allow and warn allow, deny denies, escalate asks, transform rewrites. What the engine calls a runtime error is
an error here. A snapshot has `tool_call` (id, name, args), `actor` (the agent) and `security` (taint). The
engine returns the arguments that it judged: if these are not exactly those of the call, that is an error too.

Rego policies need the program `opa`; of other types, the released engine judges `custom`, by a function of
yours. Both may block, so each call runs on a thread of its own, with a time limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from ninelives.core.errors import NineLivesError, UsageError
from ninelives.core.governance.verdicts import Allow, Ask, Call, Deny, Judgement, Rewrite, Verdict
from ninelives.governance.policy.canary import must
from ninelives.governance.policy.declared import Declaration, Declarations, DeclaredAction
from ninelives.governance.policy.file import digest_of
from ninelives.governance.policy.functions import FunctionPolicy

Evaluate = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Judges for a policy of the type `custom`: gets the engine's invocation, returns a verdict."""
_POINT, _TARGET = "pre_tool_call", "$snap.tool_call.args"
_FAULT: Final = "runtime_error"
_CANARY: Final = {
    "agent_control_specification_version": "0.3.0-alpha",
    "policies": {"canary": {"type": "custom", "adapter": "canary"}},
    "intervention_points": {
        _POINT: {
            "policy_target": _TARGET,
            "policy_target_kind": "tool_args",
            "tool_name_from": "$snap.tool_call.name",
            "policy": {"id": "canary"},
        }
    },
    "tools": {"canary": {"type": "Tool", "id": "canary"}},
}


class AgentControl:
    """A manifest of the Agent Control Specification, from a file.

    `custom` judges for policies of that type; `annotate` is called for annotators, with the name, the
    configuration and the input. `timeout` is in seconds.
    """

    tables: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self,
        path: str | Path,
        *,
        custom: Evaluate | None = None,
        annotate: Callable[..., Any] | None = None,
        timeout: float = 1.0,
        steps: Iterable[Declaration] | None = None,
    ) -> None:
        self._library = _library()
        self.name, self._path = Path(path).name, str(path)
        try:
            self.text = Path(path).read_text("utf-8")
            self._engine = self._library.NativeRuntime.from_path(self._path, annotate, custom, 0)
        except (OSError, UnicodeDecodeError, RuntimeError, ValueError) as error:
            remedy = "Name a manifest of version 0.3, with all that it extends"
            raise UsageError(f"the manifest {path} cannot be used: {error}", remedy=remedy) from None
        self.digest = digest_of(self.text)
        self._steps = list(steps) if steps is not None else None
        self._declared: Declarations | None = None
        self._gate = FunctionPolicy(partial(self._verdict, self._engine), self.name, timeout)

    def judge(self, call: Call) -> Judgement:
        """Return the engine's verdict on a call."""
        return msgspec.structs.replace(self._gate.judge(call), policy=self.digest)

    def prove(self) -> None:
        """Prove that the engine's verdicts arrive, and that its errors are errors. Raises UsageError."""
        self._declared = Declarations(self._steps)
        if _POINT not in self._engine.policy_labels():
            remedy = "Add it to intervention_points: without it, every call is refused"
            raise UsageError(f"the manifest {self.name} has no {_POINT}", remedy=remedy)
        call = Call(action="canary", kind="action", args={}, run="canary", agent="canary")
        for decision, what in (("deny", "denied"), ("allow", "allowed"), ("none", "refused")):
            said = partial(_said, decision)
            engine = self._library.NativeRuntime(json.dumps(_CANARY), None, said, 0)
            gate = FunctionPolicy(partial(self._verdict, engine), self.name, 5.0)
            must(gate.judge(call), what, self.name)

    def _verdict(self, engine: Any, call: Call) -> Verdict:
        to = self._declared.find(call.action, call.kind) if self._declared is not None else None
        if to is None and call.action != "canary":
            raise UsageError(f"no {call.kind} {call.action!r} was declared when it was loaded")
        args = {name: _plain(to, name, value) for name, value in call.args.items()}
        snapshot = {
            "tool_call": {"id": call.step, "name": call.action, "args": args},
            "actor": {"id": call.agent},
            "security": {"labels": sorted(call.taint)},
            "run": {"id": call.run, "kind": call.kind, "depth": call.depth, "labels": dict(call.labels)},
        }
        found = engine.evaluate({"intervention_point": _POINT, "snapshot": snapshot, "mode": "enforce"})
        said = found["verdict"]
        reason = str(said.get("reason") or said.get("message") or "")
        if reason.startswith(_FAULT):
            raise UsageError(f"the engine reports {reason}")
        if found["policy_input"]["snapshot"]["tool_call"]["args"] != args:
            raise UsageError("the engine judged other arguments than those of the call")
        decision = said["decision"]
        if decision in ("allow", "warn"):
            return Allow(reason)
        if decision == "deny":
            return Deny(reason or f"{self.name} denies it")
        if decision == "escalate":
            return Ask(why=reason or f"{self.name} escalates it")
        if decision == "transform" and to is not None:
            return _rewrite(found, args, to, reason)
        raise UsageError(f"the engine decides {decision!r}, which is not known")


def _said(decision: str, _: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"decision": decision}


def _plain(to: DeclaredAction | None, name: str, value: Any) -> Any:
    """Return an argument as JSON, by its annotation. Raises NotSerializable when it does not fit that."""
    if to is None or name not in to.sorts:
        raise UsageError(f"{name!r} is no argument of the action")
    return msgspec.json.decode(to.codec(name).encode(value))


def _rewrite(found: Mapping[str, Any], args: Mapping[str, Any], to: DeclaredAction, reason: str) -> Rewrite:
    changed: Any = found.get("transformed_policy_target")
    is_whole = found["policy_input"]["policy_target"]["path"] == _TARGET and isinstance(changed, dict)
    if not (found.get("transformed_policy_target_applied") and is_whole and changed.keys() == args.keys()):
        raise UsageError("the engine transforms something else than arguments of the call")
    try:
        new = {
            name: to.codec(name).decode(msgspec.json.encode(value))
            for name, value in changed.items()
            if value != args[name]
        }
    except NineLivesError as error:
        raise UsageError(f"a transformed argument does not fit: {error.what}") from None
    if not new:
        raise UsageError("the engine transforms a call, and changes nothing")
    return Rewrite(new, reason)


def _library() -> Any:
    try:
        return import_module("agent_control_specification._native")
    except ModuleNotFoundError:
        what = "the Agent Control Specification needs agent-control-specification"
        raise UsageError(what, remedy="pip install 'ninelives[acs]'") from None
