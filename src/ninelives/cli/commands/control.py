"""`ninelives signal`, `cancel`, `pause`, `resume`, `retry`, `fork`: control a run from outside.

Each request is durable when the command exits, whichever worker holds the run. Repeating it has no effect.
"""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from ninelives.cli.options import opened
from ninelives.cli.output import emit, emit_json, say
from ninelives.core.errors import UsageError
from ninelives.core.ids import check_id
from ninelives.core.model.run import Control, RunRow, State
from ninelives.engine.worker import fork as forks
from ninelives.runtime.inbox import from_json
from ninelives.runtime.run import give_control
from ninelives.views.escape import shown

DONE = {
    Control.CANCEL: "is being cancelled",
    Control.PAUSE: "is paused",
    Control.RESUME: "continues",
    Control.RETRY: "resumes at its failed step",
}


def control(url: str, run: str, action: str, *, as_json: bool) -> None:
    """Request `cancel`, `pause`, `resume` or `retry` of a run."""
    wanted = Control(action)
    with opened(url) as store:
        named = check_id(run, "run id")
        after = retry_failed(store, named) if wanted is Control.RETRY else give_control(store, named, wanted)
    if as_json:
        emit_json(_fields(after))
        return
    done = "is cancelled" if after.state is State.CANCELLED else DONE[wanted]
    needs_worker = after.session is None and not after.state.is_final and not after.paused
    emit(shown(f"run {after.id} {done}{' as soon as a worker claims it' if needs_worker else ''}"))


def retry_failed(store: Any, run: str) -> RunRow:
    """Retry a failed run. Raises UsageError for an escalated one: only an answer continues it."""
    row = store.read_run(run)
    if row is not None and row.state is State.ESCALATED:
        raise UsageError(
            "the run has not failed, it is stopped until a person decides",
            run=run,
            remedy=f"See {shlex.join(['ninelives', 'inbox', '--run', run])}; if the cause is fixed: "
            f"{shlex.join(['ninelives', 'resolve', run, '--retry'])}",
        )
    return give_control(store, run, Control.RETRY)


def fork(
    url: str, run: str, at: str, result: str | None, *, id: str | None, after: str, as_json: bool
) -> None:
    """Create a run that shares another's records up to a step."""
    edited = forks.UNCHANGED if result is None else msgspec.json.decode(from_json(result, "the result"))
    step = int(at) if at.isdecimal() else at
    with opened(url) as store:
        forked = forks.fork(store, check_id(run, "run id"), step, edited, id=id, after=after)
    if as_json:
        emit_json(_fields(forked))
        return
    emit(shown(f"run {forked.id} is a fork of run {run} at {at}"))
    if forked.session is None and not forked.state.is_final:
        say("it continues as soon as a worker claims it")


def signal(url: str, run: str, name: str, value: str, *, id: str | None, as_json: bool) -> None:
    """Send a signal to a run."""
    body = bytes(from_json(value, "the value"))
    with opened(url) as store:
        sent = store.send_signal(check_id(run, "run id"), check_id(name, "signal name"), body, id=id)
    if as_json:
        emit_json({"run": sent.run, "number": sent.number, "name": sent.name})
    else:
        emit(shown(f"signal {sent.name} is number {sent.number} of run {sent.run}"))


def _fields(run: RunRow) -> dict[str, object]:
    return {"run": run.id, "status": run.state, "paused": run.paused, "cancelling": run.cancelling}
