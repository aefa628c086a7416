"""The state machine of a run: one table of transitions. Any other one raises `IllegalTransition`."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType

from ninelives.core.errors import IllegalTransition
from ninelives.core.model.run import State


class Event(StrEnum):
    """What can happen to a run as a whole."""

    CLAIM = "claim"  # a worker takes it
    PARK = "park"  # its owner leaves it waiting
    RELEASE = "release"  # its owner's session has ended
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"
    ESCALATE = "escalate"  # only a person can settle it
    RESOLVE = "resolve"  # a person has settled it, or cancels the run
    RETRY = "retry"  # a failed run continues
    DEPART = "depart"  # it moves to another store
    RETURN = "return"  # the move was called back


TABLE = MappingProxyType(
    {
        (State.PENDING, Event.CLAIM): State.RUNNING,
        (State.PENDING, Event.CANCEL): State.CANCELLED,
        (State.RUNNING, Event.PARK): State.CHECKPOINTED,
        (State.RUNNING, Event.RELEASE): State.CHECKPOINTED,
        (State.RUNNING, Event.COMPLETE): State.COMPLETED,
        (State.RUNNING, Event.FAIL): State.FAILED,
        (State.RUNNING, Event.CANCEL): State.CANCELLED,
        (State.RUNNING, Event.ESCALATE): State.ESCALATED,
        (State.CHECKPOINTED, Event.CLAIM): State.RUNNING,
        (State.ESCALATED, Event.RESOLVE): State.CHECKPOINTED,
        (State.FAILED, Event.RETRY): State.CHECKPOINTED,
        (State.PENDING, Event.DEPART): State.MOVED,
        (State.RUNNING, Event.DEPART): State.MOVED,
        (State.CHECKPOINTED, Event.DEPART): State.MOVED,
        (State.ESCALATED, Event.DEPART): State.MOVED,
        (State.MOVED, Event.RETURN): State.CHECKPOINTED,
    }
)


def advance(state: State, event: Event, *, run: str | None = None) -> State:
    """Return the state after the event. Raises IllegalTransition for a pair that is not in the table."""
    try:
        return TABLE[state, event]
    except KeyError:
        allowed = sorted(known.value for source, known in TABLE if source is state)
        raise IllegalTransition(
            f"a run that is {state} cannot {event}",
            run=run,
            remedy=f"From {state} it can: {', '.join(allowed)}" if allowed else f"{state} is final",
        ) from None
