"""`nl.repair_history`: complete tool calls without a result, from the journal or with "unknown".

The repair itself is pure (`core.journal.chat_history`). The results found in the journal are recorded, so
that replay repairs a history in the same way, although the journal holds more by then.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from ninelives.core.errors import BadName, NineLivesError
from ninelives.core.ids import parse_step_id
from ninelives.core.journal.chat_history import HistoryCall, Message, Result, calls_in, repaired
from ninelives.core.journal.replay import StepBody, read_body
from ninelives.core.model.run import Kind, Record
from ninelives.core.values.codec import codec_for
from ninelives.engine.commit import large_bodies
from ninelives.engine.context import FRAME
from ninelives.engine.run.current import here
from ninelives.engine.run.waits import ready
from ninelives.engine.spec.registry import Step, find_step
from ninelives.engine.step.envelope import Builtin
from ninelives.store import Store

STARTED = "This call was started and its outcome is not known: check what happened before doing it again."
_FOUND = codec_for(dict[str, Result])


async def repair_history(messages: Sequence[Message], *, run: str | None = None) -> list[dict[str, Any]]:
    """Return a chat history in which every tool call has a result, and every result has its call.

    A missing result is looked up in the journal of this run, or of the run named by `run`: a step with the
    tool's name that was called with the same arguments. Outside a run, and inside a step, nothing is looked
    up. Raises UsageError when `messages` is not a chat history; UnknownRun.
    """
    calls = calls_in(messages)
    execution = here()
    if execution is None or FRAME.get() is not None or all(call.has_result for call in calls):
        return repaired(messages, {})
    async with Builtin(execution, "repair_history") as step:
        found = await step.recorded(_FOUND)
        if found is not None:
            return repaired(messages, found.value)
        # First: a result that is still being committed would be missed in the journal.
        await ready(execution)
        results = await execution.call_store(_look_up, run or execution.run.id, calls)
        await step.returns(_FOUND.encode(results))
        return repaired(messages, results)


def _look_up(store: Store, run: str, calls: list[HistoryCall]) -> dict[str, Result]:
    """Find the results of calls in a journal; equal calls take the recorded results in order."""
    # By turn and id: a step may have several records, and the last says what is known of it.
    latest: dict[tuple[int, str], tuple[str, str, Result]] = {}
    steps: dict[str, Step] = {}
    turn = 0
    for record in large_bodies.whole(store, store.load_journal(run, since=0).records):
        turn += record.kind is Kind.TURN
        step = _step_of(record)
        if step is not None:
            steps[_tool(step.name)] = step
            body = read_body(record)
            latest[turn, record.step] = step.name, body.f, _result(record, body)
    known: defaultdict[tuple[str, str], deque[Result]] = defaultdict(deque)
    for name, fingerprint, result in latest.values():
        known[name, fingerprint].append(result)
    found: dict[str, Result] = {}
    for call in calls:
        declared = steps.get(call.name)
        digest = _digest(declared, call.arguments) if declared is not None else None
        if declared is not None and digest is not None and known[declared.name, digest]:
            # A call that has its result uses up a record, too: equal calls and records are matched in order.
            result = known[declared.name, digest].popleft()
            if not call.has_result:
                found[call.id] = result
    return found


def _step_of(record: Record) -> Step | None:
    if record.kind not in (Kind.RESULT, Kind.FAILURE, Kind.INTENT):
        return None
    try:
        return find_step(parse_step_id(record.step).name)
    except BadName:
        return None


def _tool(step: str) -> str:
    return step.rpartition(".")[2]


def _digest(step: Step, arguments: Mapping[str, Any] | None) -> str | None:
    try:
        return step.fingerprint((), dict(arguments or {})).digest.hex()
    except NineLivesError:
        return None


def _result(record: Record, body: StepBody) -> Result:
    if record.kind is Kind.INTENT:
        return Result(STARTED, is_error=True)
    if body.e is not UNSET:
        failure = msgspec.json.decode(body.e)
        return Result(f"{failure['name']}: {failure['message']}", is_error=True)
    value = bytes(body.v) if body.v is not UNSET else b"null"
    plain = msgspec.json.decode(value)
    return Result(plain if isinstance(plain, str) else value.decode())
