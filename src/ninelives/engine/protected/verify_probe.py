"""The probe: call `verify=` to find out whether an action happened."""

from __future__ import annotations

import asyncio
import inspect
from contextvars import copy_context
from typing import Any

from ninelives.core.journal.settlement import Happened, NotHappened, Unknown
from ninelives.core.values.retry import PASSING, classify
from ninelives.engine.context import FRAME, Frame
from ninelives.engine.protected.protected_call import ProtectedCall
from ninelives.engine.spec import callbacks
from ninelives.engine.step.threads import IN_ITS_OWN

PROBE_SECONDS = 60.0
"""The time limit of one probe, and how long failing probes are retried before a person is asked."""


async def ask(act: ProtectedCall) -> object:
    """Call the probe; return its answer, a retryable error as it is, any other error as an Unknown."""
    context = copy_context()
    context.run(FRAME.set, Frame(act.place, act.asked))
    context.run(IN_ITS_OWN.set, True)
    asking = asyncio.Task(_verify(act), loop=act.execution.loop, context=context)
    try:
        await act.patiently(lambda: asyncio.wait({asking}, timeout=PROBE_SECONDS))
    finally:
        asking.cancel()
    if not asking.done() or asking.cancelled():
        return TimeoutError(f"verify was not done within {PROBE_SECONDS:g} s")
    error = asking.exception()
    if isinstance(error, Exception) and classify(error) in PASSING:
        return error
    if isinstance(error, callbacks.Unruly):
        return Unknown(str(error)[:500])
    if error is not None:
        return Unknown(f"verify raised {type(error).__name__}: {error}"[:500])
    answer = asking.result()
    if isinstance(answer, Happened | NotHappened | Unknown):
        return answer
    return Unknown(f"verify returned {answer!r}, which is no Happened, NotHappened or Unknown"[:500])


async def _verify(act: ProtectedCall) -> object:
    verify: Any = act.effect.verify
    kwargs = act.kwargs | ({"key": act.place.key()} if _takes_key(verify) else {})
    return await callbacks.call("verify", verify, *act.args, **kwargs)


def _takes_key(verify: Any) -> bool:
    parameters = inspect.signature(verify).parameters.values()
    return any(one.name == "key" or one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)


def said_by(answer: object) -> str:
    if isinstance(answer, Unknown):
        return answer.note
    if isinstance(answer, NotHappened):
        return "verify says that it did not happen, but it may still"
    return f"verify failed: {type(answer).__name__}: {answer}"[:500]
