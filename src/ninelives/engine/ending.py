"""The end of a run: the one place where completed, failed and cancelled are committed.

If we die before the commit, the run has not ended: the next life comes here again, by the same way.
"""

from __future__ import annotations

from ninelives.core.failures import encode_error
from ninelives.core.model import End, Kind, State
from ninelives.core.replay import write_body
from ninelives.engine.execution import Execution
from ninelives.engine.ticket import Draft, Extras


async def complete(execution: Execution, value: bytes) -> None:
    """End a run with its result."""
    record = (Kind.END, "", write_body(None, value=value))
    await execution.write([record], Extras(change=End(State.COMPLETED)))


async def fail(execution: Execution, error: BaseException) -> None:
    """End a run with what its code raised."""
    told = error if isinstance(error, Exception) else RuntimeError(f"the agent ended with {error!r}")
    record: Draft = (Kind.END, "", write_body(None, error=encode_error(told)))
    await execution.write([record], Extras(change=End(State.FAILED)))


async def cancel(execution: Execution) -> None:
    """End a run that somebody asked to end."""
    await execution.write((), Extras(change=End(State.CANCELLED)))
