"""Halts in force: real workers whose agents act every few milliseconds, and a ledger outside of the store."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ninelives.core.model.run import Kind, NewRun, State
from ninelives.governance.halt_changes import Selectors, halt, unhalt
from tests.crash.stores import AnyStore, open_at
from tests.workers.test_workers import Spawn, row, spawning, until

EVERYTHING = Selectors(everything=True)
PROTECTED = ("pay", "charge")


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
    with spawning("tests.governance.halt_agents", ground, ledger) as start:
        yield start


def begin(store: AnyStore, **agents: int) -> list[str]:
    """Create so many runs of each agent."""
    names = [f"{agent}-{number}" for agent, count in agents.items() for number in range(count)]
    store.create_runs(
        [NewRun(id=one, agent=one.partition("-")[0], fingerprint=b"f", body=b"{}") for one in names]
    )
    return names


def lines(ledger: Path, *kinds: str) -> list[tuple[str, str, int, int]]:
    """Return what was done: the step, the run, the number and the time."""
    split = (one.split() for one in ledger.read_text().splitlines())
    found = [(one[0], one[1], int(one[2]), int(one[3])) for one in split]
    return [one for one in found if not kinds or one[0] in kinds]


def have_all_acted(ledger: Path, names: list[str], after_ns: int = 0) -> bool:
    """Return whether each of these runs has acted since a moment."""
    acted = {run for _, run, _, at_ns in lines(ledger) if at_ns > after_ns}
    return acted.issuperset(names)


def starts(store: AnyStore, names: list[str]) -> set[tuple[str, str]]:
    """Return the protected calls that have begun, by what the store has."""
    return {
        (name, record.step)
        for name in names
        for record in store.load_journal(name).records
        if record.kind is Kind.INTENT and any(f"#{step}#" in record.step for step in PROTECTED)
    }


def are_quiet(ledger: Path, seconds: float) -> bool:
    """Return whether nothing was done for some time."""
    return time.time() - ledger.stat().st_mtime > seconds


def settle(ledger: Path, at_ns: int, title: str) -> float:
    """Wait until nothing acts any more; print and return how long after a moment the last body began."""
    until(lambda: are_quiet(ledger, 1.5))
    late = sorted((when - at_ns) / 1e6 for step, _, _, when in lines(ledger) if step == "look")
    late = [one for one in late if one > 0]
    p99 = late[int(len(late) * 0.99)] if late else 0.0
    print(f"{title}: {len(late)} resumable bodies after the halt, 99 % within {p99:.0f} ms")
    return late[-1] / 1000 if late else 0.0


def test_no_protected_action_begins_once_all_is_halted_and_all_goes_on_afterwards(
    store: AnyStore, spawn: Spawn, ledger: Path, request: pytest.FixtureRequest
) -> None:
    names = begin(store, payer=20, charger=10, looker=20)
    spawn(lease_seconds=10.0)
    until(lambda: have_all_acted(ledger, names))
    made = halt(store, EVERYTHING, reason="a fault", by="ada")
    at_ns, begun = time.time_ns(), starts(store, names)
    assert settle(ledger, at_ns, request.node.name) < 10.0 / 3 + 1
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


def test_without_wake_ups_a_renewal_brings_the_halt(
    store: AnyStore, spawn: Spawn, ledger: Path, request: pytest.FixtureRequest
) -> None:
    names = begin(store, looker=20)  # a refused intent would bring it at once, and there is none
    spawn("deaf", lease_seconds=3.0)
    until(lambda: have_all_acted(ledger, names))
    halt(store, EVERYTHING, reason="a fault", by="ada")
    assert settle(ledger, time.time_ns(), request.node.name) < 3.0 / 3 + 1


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
