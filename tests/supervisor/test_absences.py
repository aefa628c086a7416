"""A store whose server goes away between two calls of the supervisor, which stays."""

from __future__ import annotations

from selectors import DefaultSelector

import pytest

from ninelives.core.errors import StoreAway
from ninelives.core.model.session import Cause, NewSession, Session
from ninelives.stores.clock import SystemClock
from ninelives.stores.memory import MemoryStore
from ninelives.supervisor.protocol import WorkerSettings
from ninelives.supervisor.supervisor import Supervisor
from ninelives.supervisor.supervisor_session import SupervisorSession
from tests.clocks import SteppingClock


class Fickle(MemoryStore):
    """A store that is away for the next so many registrations."""

    away = 0

    def register_session(self, new: NewSession) -> Session:
        if self.away:
            self.away -= 1
            raise StoreAway("no server answers")
        return super().register_session(new)


@pytest.fixture
def store() -> Fickle:
    return Fickle(SystemClock())


def test_a_server_that_leaves_while_the_supervisor_begins_is_waited_for(store: Fickle) -> None:
    store.away, told = 1, list[str]()
    fleet = Supervisor(
        WorkerSettings(target="", url=""), store, SystemClock(), report=told.append, on_output=lambda *_: None
    )
    fleet._begin()
    assert told == ["no server answers; waiting for it"]
    assert len(store.list_sessions()) == 1


def test_a_server_that_stays_away_while_the_supervisor_begins_is_given_up(store: Fickle) -> None:
    store.away = 1_000_000
    settings = WorkerSettings(target="", url="", patience_seconds=-1)
    fleet = Supervisor(settings, store, SystemClock(), report=lambda _: None, on_output=lambda *_: None)
    with pytest.raises(StoreAway):
        fleet._begin()


def test_a_lost_session_is_followed_by_a_new_one_also_when_the_server_was_away_again() -> None:
    clock, told = SteppingClock(), list[str]()
    store = Fickle(clock)
    with DefaultSelector() as selector:
        keeper = SupervisorSession(store, clock, 5.0, told.append, selector)
        keeper.begin()
        clock.advance(6_000)
        store.end_sessions(None, Cause.EXPIRED)
        store.away = 1
        keeper.renew()
        assert store.list_sessions() == []
        clock.advance(2_000)
        keeper.renew()
        assert [one.id for one in store.list_sessions()] == [keeper.id]
    assert "lease expired" in told[0]
