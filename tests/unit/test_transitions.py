"""The one table of run states: every state with every event."""

from __future__ import annotations

import pytest

from ninelives.core.errors import IllegalTransition
from ninelives.core.model.run import State
from ninelives.core.model.transitions import TABLE, Event, advance

EXPECTED = {
    State.PENDING: {
        Event.CLAIM: State.RUNNING,
        Event.CANCEL: State.CANCELLED,
        Event.DEPART: State.MOVED,
    },
    State.RUNNING: {
        Event.PARK: State.CHECKPOINTED,
        Event.RELEASE: State.CHECKPOINTED,
        Event.COMPLETE: State.COMPLETED,
        Event.FAIL: State.FAILED,
        Event.CANCEL: State.CANCELLED,
        Event.ESCALATE: State.ESCALATED,
        Event.DEPART: State.MOVED,
    },
    State.CHECKPOINTED: {Event.CLAIM: State.RUNNING, Event.DEPART: State.MOVED},
    State.ESCALATED: {Event.RESOLVE: State.CHECKPOINTED, Event.DEPART: State.MOVED},
    State.MOVED: {Event.RETURN: State.CHECKPOINTED},
    State.FAILED: {Event.RETRY: State.CHECKPOINTED},
    State.COMPLETED: {},
    State.CANCELLED: {},
}


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_every_state_with_every_event(state: State, event: Event) -> None:
    after = EXPECTED[state].get(event)
    if after is not None:
        assert advance(state, event) is after
        return
    with pytest.raises(IllegalTransition) as caught:
        advance(state, event, run="r1")
    assert (caught.value.run, caught.value.remedy is None) == ("r1", False)
    assert state.value in str(caught.value)
    assert event.value in str(caught.value)


def test_the_remedy_names_what_is_allowed_or_that_nothing_is() -> None:
    with pytest.raises(IllegalTransition, match="From pending it can: cancel, claim, depart"):
        advance(State.PENDING, Event.PARK)
    with pytest.raises(IllegalTransition, match="completed is final"):
        advance(State.COMPLETED, Event.CLAIM)


def test_only_a_claim_makes_a_run_running() -> None:
    assert {event for (_, event), after in TABLE.items() if after is State.RUNNING} == {Event.CLAIM}


def test_every_state_that_is_not_final_leads_to_every_end() -> None:
    reached = {state: {state} for state in State}
    for _ in State:
        for (source, _), after in TABLE.items():
            reached[source] |= reached[after]
    ends = {state for state in State if state.is_final}
    for state in State:
        if not state.is_final:
            assert ends <= reached[state], state


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        TABLE[State.COMPLETED, Event.CLAIM] = State.RUNNING  # type: ignore[index]
