"""`[[test]]` tables of a policy file: calls, and the verdicts that they must get.

A case says what a rule is for, so a change of the file that breaks it is found by `policy test`, not by a
run. Values are those of TOML, read by the annotations of the action's arguments.
"""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from ninelives.core.errors import NineLivesError, UsageError
from ninelives.core.governance.verdicts import Allow, Ask, Call, Deny, Judgement, Rewrite
from ninelives.governance.policy.declared import DeclaredAction
from ninelives.governance.policy.judge import FilePolicy
from ninelives.governance.policy.language.errors import did_you_mean
from ninelives.governance.policy.language.names import KINDS

WORDS: Final = {Allow: "allow", Deny: "deny", Ask: "ask", Rewrite: "rewrite"}
EXPECTED: Final = (*WORDS.values(), "error")
_MIDDAY: Final = dt.datetime(2026, 1, 5, 12, tzinfo=dt.UTC)
"""When calls of cases are made, if they do not say it: a Monday."""


class Case(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A call and what is expected. With `rules`, exactly these must have led to it."""

    call: str
    expect: str
    name: str = ""
    kind: str = ""
    args: dict[str, Any] = {}
    agent: str = "test"
    run: str = "test"
    key: str = ""
    labels: dict[str, str] = {}
    taint: list[str] = []
    depth: int = 0
    turn: int = 0
    resumable: bool = True
    now: dt.datetime = _MIDDAY
    rules: list[str] | None = None
    to: str | None = None


class CaseResult(Struct, frozen=True, kw_only=True):
    """How a case came out. `problem` says what differs; empty if nothing does."""

    name: str
    line: int
    call: str
    expected: str
    found: str
    rules: tuple[str, ...]
    why: str
    problem: str = ""


def word(judgement: Judgement) -> str:
    """Return a judgement in one word."""
    return "error" if judgement.error else WORDS[type(judgement.verdict)]


def reason(judgement: Judgement) -> str:
    """Return why a judgement is what it is."""
    verdict = judgement.verdict
    return judgement.error or (verdict.note if isinstance(verdict, Allow) else verdict.why)


def results(policy: FilePolicy) -> Iterator[CaseResult]:
    """Judge each case. Raises UsageError for one that is not written rightly."""
    for number, table in enumerate(policy.spec.tests):
        line = policy.spec.lines.of_table("test", number)
        try:
            case = msgspec.convert(table, Case)
        except msgspec.ValidationError as error:
            fields = ", ".join(Case.__struct_fields__)
            raise policy.spec.lines.error(line, f"test {number + 1}: {error}", f"Keys are {fields}") from None
        yield _result(policy, case, line, case.name or f"test {number + 1}")


def _result(policy: FilePolicy, case: Case, line: int, name: str) -> CaseResult:
    lines = policy.spec.lines
    if case.expect not in EXPECTED:
        remedy = did_you_mean(case.expect, EXPECTED, "It is one of")
        raise lines.error(line, f"{name}: expect = {case.expect!r}", remedy)
    judgement = policy.judge(_call(policy, case, line, name))
    found = word(judgement)
    problem = "" if found == case.expect else f"expected {case.expect}, found {found}"
    if not problem and case.rules is not None and set(case.rules) != set(judgement.rules):
        problem = f"by rules {', '.join(judgement.rules) or 'none'}, not {', '.join(case.rules) or 'none'}"
    to = judgement.verdict.to if isinstance(judgement.verdict, Ask) else ""
    if not problem and case.to is not None and case.to != to:
        problem = f"asks {to!r}, not {case.to!r}"
    return CaseResult(
        name=name,
        line=line,
        call=case.call,
        expected=case.expect,
        found=found,
        rules=judgement.rules,
        why=reason(judgement),
        problem=problem,
    )


def _call(policy: FilePolicy, case: Case, line: int, name: str) -> Call:
    lines = policy.spec.lines
    if case.kind and case.kind not in KINDS:
        raise lines.error(line, f"{name}: kind = {case.kind!r}", did_you_mean(case.kind, KINDS, "Kinds are"))
    kinds = (case.kind,) if case.kind else KINDS
    found = [(one, kind) for kind in kinds if (one := policy.declared.find(case.call, kind)) is not None]
    if not found:
        remedy = did_you_mean(case.call, policy.declared.names, "Declared are")
        raise lines.error(line, f"{name}: no action is named {case.call!r}", remedy)
    to, kind = found[0]
    return Call(
        action=case.call,
        kind=kind,
        args=_arguments(policy, to, case, line, name),
        run=case.run,
        agent=case.agent,
        step=case.call,
        key=case.key,
        resumable=case.resumable,
        reads_only=kind == "read",
        labels=case.labels,
        depth=case.depth,
        turn=case.turn,
        taint=frozenset(case.taint),
        now=case.now if case.now.tzinfo is not None else case.now.replace(tzinfo=policy.spec.zone),
    )


def _arguments(policy: FilePolicy, to: DeclaredAction, case: Case, line: int, name: str) -> dict[str, Any]:
    lines, args = policy.spec.lines, dict[str, Any]()
    for argument, value in case.args.items():
        if argument not in to.sorts:
            remedy = did_you_mean(argument, to.sorts, "Its arguments are")
            raise lines.error(line, f"{name}: {argument!r} is no argument of {to.name!r}", remedy)
        try:
            args[argument] = to.codec(argument).decode(msgspec.json.encode(value))
        except (NineLivesError, TypeError) as error:
            why = error.what if isinstance(error, NineLivesError) else str(error)
            what = f"{name}: {argument} = {value!r} does not fit {to.name!r}: {why}"
            raise lines.error(line, what, "Give a value of the annotation's type") from None
    for argument in to.sorts:
        default = to.signature.parameters[argument].default
        if argument not in args and default is not inspect.Parameter.empty:
            args[argument] = default
    missing = [one for one in to.sorts if one not in args and not _is_variable(to, one)]
    if missing:
        what = f"{name}: {to.name!r} needs {', '.join(missing)}"
        raise lines.error(line, what, f"Write args = {{ {missing[0]} = ... }}")
    for argument in to.sorts:
        if argument not in args:
            kind = to.signature.parameters[argument].kind
            args[argument] = {} if kind is inspect.Parameter.VAR_KEYWORD else ()
    return args


def _is_variable(to: DeclaredAction, argument: str) -> bool:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return to.signature.parameters[argument].kind in kinds


def check(policy: FilePolicy) -> UsageError | None:
    """Return what is wrong with how the cases are written; None if nothing is."""
    try:
        list(results(policy))
    except UsageError as error:
        return error
    return None
