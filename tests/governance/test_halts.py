"""Halts in force: real workers whose agents act every few milliseconds, and a ledger outside of the store."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ninelives.core.model.run import State
from ninelives.governance.halt_changes import Selectors, halt, unhalt
from tests.crash.stores import AnyStore, open_at
from tests.governance.halt_rounds import (
    EVERYTHING,
    PROTECTED,
    are_quiet,
    begin,
    command,
    have_all_acted,
    late,
    lines,
    starts,
)
from tests.workers.test_workers import ROOT, row, until

Spawn = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def store(ground: Path) -> Iterator[AnyStore]:
    """Yield a store of each durable kind."""
    opened = open_at(ground)
    yield opened
    opened.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Return where the processes say what they do."""
    path = tmp_path / "ledger"
    path.touch()
    return path


@pytest.fixture
def spawn(ground: Path, store: AnyStore, ledger: Path) -> Iterator[Spawn]:
    """Yield what starts a worker process; all are killed in the end."""
    with ExitStack() as stack:

        def start(*words: str, lease_seconds: float = 30.0) -> subprocess.Popen[bytes]:
            child = subprocess.Popen(command(ground, ledger, lease_seconds, *words), cwd=ROOT)
            stack.callback(child.wait)
            stack.callback(child.kill)
            return child

        yield start


def settle(ledger: Path, at_ns: int) -> float:
    """Wait until nothing acts any more; return how many seconds after a moment the last body began."""
    return max(late(ledger, at_ns), default=0.0) / 1000


def test_no_protected_action_begins_once_all_is_halted_and_all_goes_on_afterwards(
    store: AnyStore, spawn: Spawn, ledger: Path
) -> None:
    names = begin(store, payer=20, charger=10, looker=20)
    spawn(lease_seconds=10.0)
    until(lambda: have_all_acted(ledger, names))
    made = halt(store, EVERYTHING, reason="a fault", by="ada")
    at_ns, begun = time.time_ns(), starts(store, names)
    assert settle(ledger, at_ns) < 10.0 / 3 + 1
    assert starts(store, names) == begun
    until(lambda: all(row(store, name).state is State.CHECKPOINTED for name in names))
    assert {row(store, name).waits for name in names} == {
        f"until the halt {made.id} (everything: a fault) is lifted"
    }
    lifted_ns = time.time_ns()
    unhalt(store, [made.id], by="ada")
    until(lambda: have_all_acted(ledger, names, lifted_ns))
    done = [(step, run, number) for step, run, number, _ in lines(ledger, *PROTECTED)]
    assert len(done) == len(set(done))


def test_without_wake_ups_a_renewal_brings_the_halt(store: AnyStore, spawn: Spawn, ledger: Path) -> None:
    names = begin(store, looker=20)  # a refused intent would bring it at once, and there is none
    spawn("deaf", lease_seconds=3.0)
    until(lambda: have_all_acted(ledger, names))
    halt(store, EVERYTHING, reason="a fault", by="ada")
    assert settle(ledger, time.time_ns()) < 3.0 / 3 + 1


@pytest.mark.parametrize(
    "selectors", [Selectors(agent="payer"), Selectors(action="pay"), Selectors(run="payer-0")]
)
def test_what_is_not_halted_goes_on(
    store: AnyStore, spawn: Spawn, ledger: Path, selectors: Selectors
) -> None:
    names = begin(store, payer=1, charger=2, looker=2)
    spawn()
    until(lambda: have_all_acted(ledger, names))
    halt(store, selectors, reason="a fault", by="ada")
    begun = starts(store, ["payer-0"])
    until(lambda: row(store, "payer-0").state is State.CHECKPOINTED)
    at_ns = time.time_ns()
    until(lambda: have_all_acted(ledger, names[1:], at_ns))
    assert starts(store, ["payer-0"]) == begun


def test_a_worker_that_was_stopped_begins_nothing_when_it_goes_on_after_the_halt(
    store: AnyStore, spawn: Spawn, ledger: Path
) -> None:
    names = begin(store, payer=10, looker=10)
    child = spawn(lease_seconds=1.0)
    until(lambda: have_all_acted(ledger, names))
    os.kill(child.pid, signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        # A stopped process may hold up all writers: its turn ends with a signal, not by itself.
        begun = None
        while begun is None:
            try:
                halt(store, EVERYTHING, reason="a fault", by="ada")
            except Exception:
                os.kill(child.pid, signal.SIGCONT)
                os.kill(child.pid, signal.SIGSTOP)
            else:
                begun = starts(store, names)
        until(lambda: all(one.left_ms <= 0 for one in store.list_sessions()) or not store.list_sessions())
        before = len(lines(ledger))
    finally:
        os.kill(child.pid, signal.SIGCONT)
    until(lambda: child.poll() is not None or are_quiet(ledger, 3.0))
    assert starts(store, names) == begun
    assert len(lines(ledger)) == before


def test_a_halt_survives_the_death_of_all_workers(store: AnyStore, spawn: Spawn, ledger: Path) -> None:
    names = begin(store, payer=3, looker=3)
    first = spawn(lease_seconds=1.0)
    until(lambda: have_all_acted(ledger, names))
    first.kill()
    first.wait()
    halt(store, EVERYTHING, reason="a fault", by="ada")
    before = len(lines(ledger, *PROTECTED, "look"))
    spawn(lease_seconds=1.0)
    # A payment that was under way is in doubt, and waits for a person.
    until(
        lambda: all(row(store, name).waits.startswith(("until the halt", "for a person")) for name in names)
    )
    assert len(lines(ledger, *PROTECTED, "look")) == before
    assert any(row(store, name).waits.startswith("until the halt") for name in names)


def test_a_halt_with_an_end_lets_go_by_itself(store: AnyStore, spawn: Spawn, ledger: Path) -> None:
    names = begin(store, looker=3)
    spawn()
    until(lambda: have_all_acted(ledger, names))
    made = halt(store, EVERYTHING, reason="a fault", by="ada", until="2s")
    until(lambda: have_all_acted(ledger, names, (made.until_ms or 0) * 1_000_000))
    held = [
        at_ns
        for _, _, _, at_ns in lines(ledger)
        if made.at_ms + 1_000 < at_ns // 1_000_000 < made.at_ms + 2_000
    ]
    assert held == []
