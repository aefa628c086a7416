"""Machines and containers of one name: a process number of the one proves nothing on the other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from selectors import DefaultSelector
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ninelives.core.model.run import NewRun
from ninelives.core.model.session import Cause, Evidence, Fate, NewSession
from ninelives.engine.machine import host, machine
from ninelives.stores.clock import SystemClock
from ninelives.stores.memory import MemoryStore
from ninelives.supervisor.process import WorkerProcess
from ninelives.supervisor.supervisor_session import SupervisorSession

NAMESAKE = f"{machine()}~00000000"


@pytest.fixture
def store() -> MemoryStore:
    """A store with a worker here, and one of the same number on a machine of the same name; no supervisor."""
    store = MemoryStore(SystemClock())
    for name, where in (("here", host()), ("there", NAMESAKE)):
        store.register_session(NewSession(id=name, host=where, pid=os.getpid(), keeper="nobody"))
    return store


@pytest.fixture
def keeper(store: MemoryStore) -> Iterator[SupervisorSession]:
    """A supervisor's part that tells of deaths."""
    with DefaultSelector() as selector:
        yield SupervisorSession(store, SystemClock(), 5.0, lambda _: None, selector)


def test_who_is_kept_elsewhere_is_not_declared_gone_with_those_here(
    store: MemoryStore, keeper: SupervisorSession
) -> None:
    keeper.begin()
    left = {session.id for session in store.list_sessions()}
    assert "there" in left
    assert "here" not in left


def test_the_death_of_a_worker_ends_no_namesake(store: MemoryStore, keeper: SupervisorSession) -> None:
    dead: Any = SimpleNamespace(
        pid=os.getpid(), session="new", is_stopping=False, evidence=lambda: Evidence(signal=9)
    )
    keeper.declare(cast("WorkerProcess", dead))
    assert {session.id for session in store.list_sessions()} == {"there"}


def test_another_namespace_of_processes_is_another_host() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: unshare makes a namespace of processes")
    say = "from ninelives.engine.machine import host; print(host())"
    apart = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", say],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert apart.stdout.strip() != host()
    assert apart.stdout.partition("~")[0] == machine()


def test_people_see_the_machine_by_its_name(store: MemoryStore) -> None:
    assert {session.machine for session in store.list_sessions()} == {machine()}


def test_nobody_is_declared_gone_while_a_process_with_its_supervisors_mark_lives(
    store: MemoryStore, keeper: SupervisorSession
) -> None:
    """It may serve the same store under another name: then it was not swept."""
    supervisor = subprocess.Popen([sys.executable, "-c", ""])
    supervisor.wait(60)
    kept = f"{machine()}-{supervisor.pid}-abcd"
    store.register_session(NewSession(id="stray", host=host(), pid=1, keeper=kept))
    mark = {"NINELIVES_KEEPER": f"{supervisor.pid}-1-boot-another"}
    stray = subprocess.Popen(["sleep", "600"], env={**os.environ, **mark})
    try:
        keeper.begin()
        assert "stray" in {session.id for session in store.list_sessions()}
    finally:
        stray.kill()
        stray.wait(60)
    keeper.begin()
    assert "stray" not in {session.id for session in store.list_sessions()}


@pytest.mark.parametrize(
    ("where", "is_dead", "is_proved"),
    [
        (host(), True, True),
        (host(), False, False),
        (NAMESAKE, True, False),
    ],
)
def test_who_died_with_a_supervisor_whose_lease_still_runs_is_proved_gone_here(
    store: MemoryStore, keeper: SupervisorSession, where: str, is_dead: bool, is_proved: bool
) -> None:
    """Not every store sees a process die: what is asked then is whether the process is there."""
    supervisor = subprocess.Popen([sys.executable, "-c", ""])
    supervisor.wait(60)
    kept = f"{machine()}-{supervisor.pid}-abcd"
    pid = supervisor.pid if is_dead else os.getpid()
    store.register_session(NewSession(id=kept, host=where, pid=pid))
    store.register_session(NewSession(id="worker", host=where, pid=supervisor.pid, keeper=kept))
    keeper.begin()
    worker = store.read_session("worker")
    assert worker is not None
    assert (worker.fate is Fate.GONE) is is_proved


def test_who_was_ended_by_others_before_the_next_supervisor_came_is_proved_gone_by_it(
    store: MemoryStore, keeper: SupervisorSession
) -> None:
    supervisor = subprocess.Popen([sys.executable, "-c", ""])
    supervisor.wait(60)
    kept = f"{machine()}-{supervisor.pid}-abcd"
    store.create_runs([NewRun(id="run", agent="agent", fingerprint=b"f" * 16, body=b"{}")])
    store.register_session(NewSession(id="worker", host=host(), pid=supervisor.pid, keeper=kept))
    store.claim_runs("worker", 1, {"agent": 1}, queues=["default"])
    store.end_sessions(["worker"], Cause.EXPIRED)
    before = store.read_session("worker")
    keeper.begin()
    worker = store.read_session("worker")
    assert before is not None
    assert before.fate is Fate.UNKNOWN
    assert worker is not None
    assert worker.fate is Fate.GONE
    assert worker.cause is Cause.EXPIRED
