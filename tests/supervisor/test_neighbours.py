"""A supervisor that died together with its workers, while another one works beside it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from selectors import DefaultSelector

import pytest

from ninelives.core.model.session import Cause, Fate, NewSession
from ninelives.engine.machine import host, machine
from ninelives.stores.clock import SystemClock
from ninelives.stores.memory import MemoryStore
from ninelives.supervisor.supervisor_session import SupervisorSession
from tests.clocks import SteppingClock

NAMESAKE = f"{machine()}~00000000"


class Gang:
    """A supervisor elsewhere on this machine, and its worker; both sleep until they are killed."""

    def __init__(self, store: MemoryStore, where: str) -> None:
        self.supervisor, self.worker = (subprocess.Popen(["sleep", "600"], process_group=0) for _ in range(2))
        self._store, self.keeper = store, f"{machine()}-{self.supervisor.pid}-abcd"
        store.register_session(NewSession(id=self.keeper, host=where, pid=self.supervisor.pid))
        store.register_session(
            NewSession(id="worker", host=where, pid=self.worker.pid, keeper=self.keeper, lease_ms=600_000)
        )

    def kill(self, *processes: subprocess.Popen[bytes], is_reaped: bool = True) -> None:
        """Kill -9 them; not reaped, they stay as zombies."""
        for process in processes:
            process.kill()
            if is_reaped:
                process.wait(60)
            else:
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    def fate(self) -> Fate:
        """Return what is known of the worker."""
        found = self._store.read_session("worker")
        assert found is not None
        return found.fate


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SystemClock())


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
def neighbour(store: MemoryStore, clock: SteppingClock) -> Iterator[SupervisorSession]:
    """A supervisor's part that has begun, and goes on."""
    with DefaultSelector() as selector:
        made = SupervisorSession(store, clock, 5.0, lambda _: None, selector)
        made.begin()
        yield made


@pytest.fixture
def gang(request: pytest.FixtureRequest, store: MemoryStore, neighbour: SupervisorSession) -> Iterator[Gang]:
    made = Gang(store, getattr(request, "param", host()))
    neighbour.watch()  # with all of them alive
    yield made
    made.kill(made.supervisor, made.worker)


def look(neighbour: SupervisorSession, clock: SteppingClock) -> None:
    clock.advance(2_000)
    neighbour.watch()


@pytest.mark.parametrize("is_reaped", [True, False])
def test_who_died_with_its_supervisor_is_proved_gone_by_one_that_is_there(
    neighbour: SupervisorSession, gang: Gang, clock: SteppingClock, is_reaped: bool
) -> None:
    """Also in a container whose first process reaps nobody."""
    look(neighbour, clock)
    assert gang.fate() is Fate.LIVES
    gang.kill(gang.supervisor, gang.worker, is_reaped=is_reaped)
    look(neighbour, clock)
    assert gang.fate() is Fate.GONE


def test_who_was_ended_by_others_meanwhile_is_proved_gone_by_one_that_is_there(
    store: MemoryStore, neighbour: SupervisorSession, gang: Gang, clock: SteppingClock
) -> None:
    gang.kill(gang.supervisor, gang.worker)
    store.end_sessions(["worker", gang.keeper], Cause.EXPIRED)
    assert gang.fate() is Fate.UNKNOWN
    look(neighbour, clock)
    assert gang.fate() is Fate.GONE


@pytest.mark.parametrize("who", ["supervisor", "worker"])
def test_nobody_is_proved_gone_while_its_supervisor_or_its_own_process_is_there(
    neighbour: SupervisorSession, gang: Gang, clock: SteppingClock, who: str
) -> None:
    gang.kill(gang.worker if who == "supervisor" else gang.supervisor)
    look(neighbour, clock)
    assert gang.fate() is Fate.LIVES


def test_a_supervisor_without_a_session_that_is_still_there_buries_its_own(
    store: MemoryStore, neighbour: SupervisorSession, gang: Gang, clock: SteppingClock
) -> None:
    gang.kill(gang.worker)
    store.end_sessions([gang.keeper], Cause.EXPIRED)
    look(neighbour, clock)
    assert gang.fate() is Fate.LIVES


@pytest.mark.parametrize("gang", [NAMESAKE], indirect=True)
def test_of_another_machine_nobody_is_proved_gone(
    neighbour: SupervisorSession, gang: Gang, clock: SteppingClock
) -> None:
    gang.kill(gang.supervisor, gang.worker)
    look(neighbour, clock)
    assert gang.fate() is Fate.LIVES


@pytest.mark.parametrize("is_marked", [True, False])
def test_nobody_is_proved_gone_while_something_of_it_is_there(
    neighbour: SupervisorSession, gang: Gang, clock: SteppingClock, is_marked: bool
) -> None:
    """It has the supervisor's mark, or is only of the worker's process group."""
    mark = {"NINELIVES_KEEPER": f"{gang.supervisor.pid}-1-boot-another"} if is_marked else {}
    group = None if is_marked else gang.worker.pid
    stray = subprocess.Popen(["sleep", "600"], env={**os.environ, **mark}, process_group=group)
    try:
        gang.kill(gang.supervisor, gang.worker)
        look(neighbour, clock)
        assert gang.fate() is Fate.LIVES
    finally:
        stray.kill()
        stray.wait(60)
    look(neighbour, clock)
    assert gang.fate() is Fate.GONE
