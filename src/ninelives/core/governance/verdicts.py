"""What a policy is asked about, and what it may answer.

A policy judges each call before anything of it happens. Of several verdicts the strictest wins: deny, then
ask, then rewrite, then allow. A `Judgement` is what is recorded with the step: the verdict, the rules that
led to it, and the digest of the policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from msgspec import Struct

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Call(Struct, frozen=True, kw_only=True):
    """A call of a step, before it begins.

    `kind` is "decision", "action", "read" (an action that only reads), "spawn" or "compensation". `args` are
    the bound arguments, with defaults. `taint` names where data came from that the run has read so far.
    `depth` counts the run's ancestors, `root` is the first of them, or the run itself; empty if unknown.
    """

    action: str
    kind: str
    args: Mapping[str, Any]
    run: str
    agent: str
    step: str = ""
    key: str = ""
    resumable: bool = True
    reads_only: bool = False
    labels: Mapping[str, str] = _NOTHING
    parent: str | None = None
    depth: int = 0
    root: str = ""
    turn: int = 0
    taint: frozenset[str] = frozenset()
    now: datetime | None = None


class Allow(Struct, frozen=True):
    """The call may be carried out."""

    note: str = ""


class Deny(Struct, frozen=True):
    """The call is refused; the agent gets `nl.Denied` with the reason."""

    why: str


class Ask(Struct, frozen=True):
    """A person decides. `to` is a person or a role; `approvals` is how many different people must agree."""

    to: str = ""
    why: str = ""
    approvals: int = 1
    timeout: float | None = None


class Rewrite(Struct, frozen=True):
    """The call is carried out with other values for some of its arguments."""

    args: Mapping[str, Any]
    why: str = ""


Verdict = Allow | Deny | Ask | Rewrite

_STRICTNESS: dict[type, int] = {Allow: 0, Rewrite: 1, Ask: 2, Deny: 3}


class Judgement(Struct, frozen=True):
    """A verdict, the ids of the rules that led to it, and the digest of the policy.

    `error` is set when a rule failed: the verdict is then never `Allow`.
    """

    verdict: Verdict
    rules: tuple[str, ...] = ()
    policy: str = ""
    error: str = ""


def strictest(judgements: Iterable[Judgement]) -> Judgement:
    """Return the strictest of some judgements; of equally strict ones the first. There must be one."""
    return max(judgements, key=lambda one: _STRICTNESS[type(one.verdict)])
