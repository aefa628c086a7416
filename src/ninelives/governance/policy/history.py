"""What a policy would have said of calls that were made: judged again from the journals of a store.

A journal keeps the beginning of each argument of a step (60 characters of its JSON), not all of it, and
leaves out an argument that had its default. So a call is judged as far as its rules can be: where one of them
reads something that was not kept, the call counts as not judged, and never as allowed. The arguments of runs
are kept whole. Reads only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from ninelives.core.clock import moment
from ninelives.core.errors import Corrupt, Divergence, UnknownRun
from ninelives.core.governance.verdicts import Call
from ninelives.core.journal.replay import read_body
from ninelives.core.model.run import Kind, Record, RunQuery, RunRow, StepKind
from ninelives.core.step_ids import read_step_id
from ninelives.core.values.codec import Codec
from ninelives.governance.policy.cases import reason, word
from ninelives.governance.policy.declared import SPAWN, DeclaredAction
from ninelives.governance.policy.judge import NOT_STORED, FilePolicy
from ninelives.governance.policy.language.errors import NotStored

if TYPE_CHECKING:
    from ninelives.stores.open import AnyStore

_PAGE, _MOST_LISTED, _DEEPEST = 500, 1_000, 100
_CUT: Final = re.compile(r"… \(\d+\)\Z")
_STARTS: Final = frozenset({Kind.INTENT, Kind.RESULT, Kind.FAILURE, Kind.DOUBT})
_KINDS: Final = {StepKind.DECISION: "decision", StepKind.ACTION: "action", StepKind.READ: "read"}
_VERDICTS: Final = {"a": "allow", "d": "deny", "q": "ask", "r": "rewrite"}
NOT_JUDGED: Final = "not judged"


class PastCall(Struct, frozen=True, kw_only=True):
    """A call of the past: what was said of it then ("allow" where nothing governed it), and what would be."""

    run: str
    step: str
    action: str
    kind: str
    at_ms: int
    was: str
    would: str
    rules: tuple[str, ...]
    why: str


class Tried(Struct, frozen=True, kw_only=True):
    """What a policy would have changed. `changes` and `not_judged` list the newest, up to a limit."""

    since_ms: int
    runs: int
    calls: int
    unchanged: int
    changed: dict[str, int]
    changes: tuple[PastCall, ...]
    not_judged_count: int
    reasons: dict[str, int]
    unread_runs: tuple[str, ...]


class _Body(Struct, frozen=True):
    """The part of a step's record that says how its call was judged."""

    j: dict[str, Any] | None = None


_READ_BODY = msgspec.json.Decoder(_Body).decode


def try_policy(policy: FilePolicy, store: AnyStore, since_ms: int) -> Tried:
    """Judge what was done since a moment, and return what would differ."""
    runs = calls = unchanged = not_judged = 0
    changed, reasons = Counter[str](), Counter[str]()
    changes: list[PastCall] = []
    unread: list[str] = []
    depths: dict[str, int] = {}
    for row in _runs(store, since_ms):
        runs += 1
        try:
            found = list(_past_calls(policy, store, row, depths, since_ms))
        except (Corrupt, UnknownRun):
            unread.append(row.id)
            continue
        for one in found:
            calls += 1
            if one.would == NOT_JUDGED:
                not_judged += 1
                reasons[one.why] += 1
            elif one.would == one.was:
                unchanged += 1
            else:
                changed[f"{one.was} to {one.would}"] += 1
                if len(changes) < _MOST_LISTED:
                    changes.append(one)
    return Tried(
        since_ms=since_ms,
        runs=runs,
        calls=calls,
        unchanged=unchanged,
        changed=dict(changed.most_common()),
        changes=tuple(changes),
        not_judged_count=not_judged,
        reasons=dict(reasons.most_common(20)),
        unread_runs=tuple(unread[:_MOST_LISTED]),
    )


def _runs(store: AnyStore, since_ms: int) -> Iterator[RunRow]:
    after: int | None = None
    while page := store.list_runs(RunQuery(limit=_PAGE, after=after, changed_since_ms=since_ms)):
        yield from page
        after = page[-1].number


def _past_calls(
    policy: FilePolicy, store: AnyStore, row: RunRow, depths: dict[str, int], since_ms: int
) -> Iterator[PastCall]:
    journal = store.load_journal(row.id, since=0)
    depth = _depth(store, row, depths)
    facts = {
        "run": row.id,
        "agent": row.agent,
        "labels": row.labels,
        "parent": row.parent,
        # Nothing in a journal says what had been read by then.
        "taint": NotStored("taint is not in journals"),
    }
    turn, seen = 0, set[tuple[int, str]]()
    for record in journal.records:
        if record.kind is Kind.TURN:
            turn += 1
        if record.kind is Kind.CREATED and row.parent is not None and record.at_ms >= since_ms:
            yield _spawned(policy, store, row, record, {**facts, "depth": depth - 1})
        kind = _KINDS.get(record.step_kind) if record.step_kind is not None else None
        if kind is None or record.kind not in _STARTS or (turn, record.step) in seen:
            continue
        seen.add((turn, record.step))
        if record.at_ms >= since_ms:
            yield _step(policy, store, row, record, kind, {**facts, "depth": depth, "turn": turn})


def _step(
    policy: FilePolicy, store: AnyStore, row: RunRow, record: Record, kind: str, facts: dict[str, Any]
) -> PastCall:
    held = record
    if not record.body and record.blobs:
        body = store.get_blobs(record.blobs[:1])[record.blobs[0]]
        held = msgspec.structs.replace(record, body=body)
    known = read_step_id(record.step)
    action = known.name if known is not None else record.step
    was = _VERDICTS.get((_READ_BODY(held.body).j or {}).get("v", "a"), "allow")
    to = policy.declared.find(action, kind)
    if to is None and (renamed := _renamed(policy, action)) is not None:
        action, to = renamed, policy.declared.find(renamed, kind)
    if to is None:
        return _judged(policy, None, row, record, action, kind, was)
    args = {name: _argument(to, name, preview) for name, preview in _previews(to, read_body(held).a).items()}
    call = Call(
        action=action,
        kind=kind,
        args=args,
        step=record.step,
        reads_only=kind == "read",
        key=NotStored("keys are not in journals"),  # type: ignore[arg-type]
        now=moment(record.at_ms),
        **facts,
    )
    return _judged(policy, call, row, record, action, kind, was)


def _renamed(policy: FilePolicy, action: str) -> str | None:
    """Return the name that a step has now that had another one when it was called."""
    return next((step.name for step in policy.declared.steps if action in step.aliases), None)


def _previews(to: DeclaredAction, kept: Mapping[str, str]) -> dict[str, str | None]:
    return {name: kept.get(name) for name in to.sorts}


def _argument(to: DeclaredAction, name: str, preview: str | None) -> Any:
    """Return an argument as the step got it, or what stands for one that was not kept."""
    parameter = to.signature.parameters[name]
    if preview is None:
        is_default = parameter.default is not parameter.empty
        return parameter.default if is_default else NotStored(f"the journal has no {name!r}")
    if _CUT.search(preview):
        return NotStored(f"only the beginning of {name!r} is in the journal")
    return _decoded(to.codec(name), preview.encode(), name)


def _decoded(codec: Codec, data: bytes, name: str) -> Any:
    try:
        return codec.decode(data)
    except (Corrupt, Divergence):
        # Previews follow the value, not the annotation: a class is written in another way.
        return NotStored(f"{name!r} is in the journal in words for people only")


def _spawned(
    policy: FilePolicy, store: AnyStore, row: RunRow, record: Record, facts: dict[str, Any]
) -> PastCall:
    """Judge the spawn of a child: its record 0 keeps all of its arguments."""
    to = policy.declared.find(row.agent, SPAWN)
    if to is None:
        return _judged(policy, None, row, record, row.agent, SPAWN, "allow")
    body = record.body
    if not body and record.blobs:
        body = store.get_blobs(record.blobs[:1])[record.blobs[0]]
    kept = msgspec.json.decode(body, type=dict[str, Any])
    raw = msgspec.json.decode(body, type=_Arguments).p
    args = {
        name: NotStored(f"{name!r} is a long list")
        if name in kept.get("split", ())
        else _decoded(to.codec(name), bytes(raw[name]), name)
        if name in raw
        else _argument(to, name, None)
        for name in to.sorts
    }
    parent = store.read_run(row.parent or "")
    lost = NotStored("the run that spawned it is gone")
    by = {
        "run": row.parent,
        "agent": parent.agent if parent is not None else lost,
        "labels": parent.labels if parent is not None else lost,
        "parent": parent.parent if parent is not None else lost,
    }
    call = Call(
        action=row.agent,
        kind=SPAWN,
        args=args,
        now=moment(record.at_ms),
        **{**facts, **by},
    )
    return _judged(policy, call, row, record, row.agent, SPAWN, "allow")


class _Arguments(Struct, frozen=True):
    p: dict[str, Raw] = {}


def _judged(
    policy: FilePolicy, call: Call | None, row: RunRow, record: Record, action: str, kind: str, was: str
) -> PastCall:
    rules: tuple[str, ...] = ()
    if call is None:
        would, why = NOT_JUDGED, f"this code declares no {kind} {action!r}"
    else:
        judgement = policy.judge(call)
        would, rules, why = word(judgement), judgement.rules, reason(judgement)
        if NOT_STORED in why:
            would, why = NOT_JUDGED, why.partition(NOT_STORED)[2].partition(";")[0]
    return PastCall(
        run=row.id,
        step=record.step,
        action=action,
        kind=kind,
        at_ms=record.at_ms,
        was=was,
        would=would,
        rules=rules,
        why=why,
    )


def _depth(store: AnyStore, row: RunRow, depths: dict[str, int]) -> int:
    """Return how many ancestors a run has."""
    chain, parent = [row.id], row.parent
    while parent is not None and parent not in depths and len(chain) < _DEEPEST:
        chain.append(parent)
        above = store.read_run(parent)
        parent = above.parent if above is not None else None
    depth = depths[parent] + 1 if parent is not None and parent in depths else 0
    for one in reversed(chain):
        depths[one] = depth
        depth += 1
    return depths[row.id]
