"""Damage under runs in flight: they go on where that forgets nothing that was done, or wait for a person."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

import ninelives as nl
from ninelives.core.errors import StoreError
from ninelives.core.model.run import Kind, State
from ninelives.core.model.session import Cause
from ninelives.stores.sqlite import SqliteStore
from tests.replay.lifetimes import run_async

RUNS = 8
PAGE_BYTES = 4096
LIMIT_SECONDS = 60.0


class World:
    """What was done, outside the store: each effect with its key and its arguments."""

    def __init__(self) -> None:
        self.effects: list[tuple[str, str, str]] = []
        self.is_second = False
        self.stopped = 0


world = World()


@nl.decision(name="choose")
async def choose(number: int) -> str:
    """Answer otherwise each time it is asked; long ones fill pages of their own."""
    return f"{number}:{secrets.token_hex(4)}" + "x" * (700 * number)


@nl.action(name="act")
async def act(chosen: str) -> str:
    world.effects.append((nl.info().run, nl.key(), chosen))
    return chosen


@nl.decision(name="stop")
async def stop() -> None:
    if not world.is_second:
        world.stopped += 1
        await asyncio.Event().wait()


def declare() -> Any:
    """Declare the agent: decisions, then an action on one of them, then decisions again, then a stop."""

    @nl.agent(name="damaged")
    async def agent(before: int, after: int) -> list[str]:
        chosen = [await choose(number) for number in range(before)]
        done = [await act(chosen[-1])] if chosen else []
        chosen += [await choose(number) for number in range(after)]
        await stop()
        return [*done, await act("last"), str(len(chosen))]

    return agent


def prepare(path: Path) -> None:
    """Leave runs in flight, each stopped at another place."""
    world.__init__()  # type: ignore[misc]
    agent = declare()

    async def main() -> None:
        async with nl.Runtime(f"sqlite:///{path}") as rt:
            for number in range(RUNS):
                await rt.start(agent, number % 4, number // 2, id=f"r{number}")
            working = asyncio.create_task(rt.work())
            while world.stopped < RUNS:  # noqa: ASYNC110 (they stop where they are)
                await asyncio.sleep(0.005)
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working

    run_async(main)
    world.is_second = True


def go_on(path: Path) -> dict[str, State]:
    """Work on what there is until nothing can be worked on; returns where the runs are."""

    async def main() -> dict[str, State]:
        async with nl.Runtime(f"sqlite:///{path}") as rt:
            await rt.work(until_idle=True)
            return {run: await (await rt.get(run)).status() for run in (f"r{n}" for n in range(RUNS))}

    return run_async(main)


def violations(begun: list[tuple[str, str, str]], states: dict[str, State]) -> list[str]:
    """Judge by what was done: under one key always the same, and what ended was done."""
    found = [f"{run} is {state}" for run, state in states.items() if state not in ("completed", "escalated")]
    arguments: dict[tuple[str, str], str] = {}
    for run, key, chosen in begun:
        if arguments.setdefault((run, key), chosen) != chosen:
            found.append(f"{run} did {arguments[run, key][:20]} and then {chosen[:20]} under one key")
    for run, state in states.items():
        if state is State.COMPLETED and not any(one[0] == run and one[2] == "last" for one in begun):
            found.append(f"{run} completed without its last effect")
    return found


def copied(source: Path, target: Path) -> Path:
    """Copy a closed store."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(mode=0o700)
    for name in ("runs.db", "runs.db-anchor"):
        shutil.copyfile(source / name, target / name)
        (target / name).chmod(0o600)
    return target / "runs.db"


def test_a_flipped_bit_in_any_page_is_survived_or_put_before_a_person(tmp_path: Path) -> None:
    (tmp_path / "sound").mkdir(mode=0o700)
    prepare(tmp_path / "sound" / "runs.db")
    before = list(world.effects)
    tally = dict.fromkeys(("refused", "unreadable", "escalated", "salvaged", "harmless"), 0)
    for page in range((tmp_path / "sound" / "runs.db").stat().st_size // PAGE_BYTES):
        path = copied(tmp_path / "sound", tmp_path / "damaged")
        image = bytearray(path.read_bytes())
        image[page * PAGE_BYTES + (page * 997) % (PAGE_BYTES - 8)] ^= 1 << page % 8
        path.write_bytes(image)
        world.effects = list(before)
        try:
            states = go_on(path)
        except StoreError:
            # At open, or when the damage is not in what belongs to one run: nothing was done then.
            tally["refused" if world.effects == before else "unreadable"] += 1
            assert violations(world.effects, {}) == []
            continue
        assert violations(world.effects, states) == [], f"page {page}"
        tally["escalated"] += State.ESCALATED in states.values()
        tally["salvaged"] += any(kinds(path, run).count(Kind.SALVAGED) for run in states)
        tally["harmless"] += set(states.values()) == {State.COMPLETED}
    assert tally["escalated"] > 0, tally
    assert tally["salvaged"] > 0, tally
    assert tally["refused"] > 0, tally


def kinds(path: Path, run: str) -> list[Kind]:
    """Return the kinds of a run's records, if they can be read."""
    store = SqliteStore(path)
    try:
        return [record.kind for record in store.load_journal(run, since=0).records]
    except StoreError:
        return []
    finally:
        store.close()


def damage(path: Path, run: str, seq: int) -> None:
    """Change a record behind the store's back."""
    connection = apsw.Connection(str(path))
    connection.execute(
        "UPDATE records SET body = x'00' WHERE seq = ?2 AND run = (SELECT number FROM runs WHERE id = ?1)",
        (run, seq),
    )
    assert connection.changes() == 1
    connection.close()


@pytest.mark.parametrize("late", [False, True])
def test_decisions_are_asked_again_unless_something_was_done_with_them(tmp_path: Path, late: bool) -> None:
    path = tmp_path / "runs.db"
    prepare(path)
    before = kinds(path, "r7")
    assert before.count(Kind.RESULT) == 7  # three decisions, an action on the last of them, three decisions
    results = [seq for seq, kind in enumerate(before) if kind is Kind.RESULT]
    SqliteStore(path).close()
    damage(path, "r7", results[4 if late else 1])
    states = go_on(path)
    assert states["r7"] is (State.COMPLETED if late else State.ESCALATED)
    assert (Kind.SALVAGED in kinds(path, "r7")) is late
    assert violations(world.effects, states) == []
    assert {state for run, state in states.items() if run != "r7"} == {State.COMPLETED}


KILLED = """
import os, signal, sys
from ninelives.stores.sqlite import SqliteStore, transaction
from ninelives.core.model.session import NewSession

store = SqliteStore("runs.db")
store.register_session(NewSession(id=sys.argv[2], host="h", pid=1, lease_ms=600000))
(run,) = store.claim_runs(sys.argv[2], 1, {"damaged": 1}, only="r7").runs
left = [int(sys.argv[1])]

def counted(original):
    def call(self, *args):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, *args)
    return call

for name in ("do", "all", "many"):
    setattr(transaction.Transaction, name, counted(getattr(transaction.Transaction, name)))
store.salvage("r7", run.epoch)
print("salvaged", flush=True)
"""


def test_killed_inside_salvage_it_is_as_before_or_done(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    prepare(path)
    SqliteStore(path).close()
    last = len(kinds(path, "r7")) - 1
    damage(path, "r7", last)
    killed = 0
    for count in range(1, 200):
        ran = subprocess.run(
            [sys.executable, "-c", KILLED, str(count), f"s{count}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        store = SqliteStore(path)
        store.end_sessions([f"s{count}"], Cause.STOPPED)
        store.close()
        if ran.returncode == 0:
            break
        assert ran.returncode == -signal.SIGKILL, ran.stderr
        killed += 1
    assert killed > last
    assert Kind.SALVAGED in kinds(path, "r7")
    states = go_on(path)
    assert set(states.values()) == {State.COMPLETED}
    assert violations(world.effects, states) == []


def test_a_damaged_snapshot_falls_back_to_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    stopped = asyncio.Event()
    asked: list[int] = []

    @nl.decision(name="count")
    async def count(number: int) -> int:
        asked.append(number)
        return number + 1

    @nl.decision(name="wait")
    async def wait() -> None:
        if not stopped.is_set():
            stopped.set()
            await asyncio.Event().wait()

    @nl.agent(name="turning")
    async def agent(number: int = 0) -> Any:
        number = await count(number)
        if number == 3:
            await wait()
        return number if number == 4 else nl.next_turn(number)

    async def first() -> None:
        async with nl.Runtime(f"sqlite:///{path}") as rt:
            await rt.start(agent, id="r")
            working = asyncio.create_task(rt.work())
            await stopped.wait()
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working

    run_async(first)
    turns = [seq for seq, kind in enumerate(kinds(path, "r")) if kind is Kind.TURN]
    assert (len(turns), asked) == (2, [0, 1, 2])
    damage(path, "r", turns[-1])

    async def second() -> tuple[Any, Any]:
        async with nl.Runtime(f"sqlite:///{path}") as rt:
            result = await rt.run(agent, id="r")
            return result, await (await rt.get("r")).history()

    result, history = run_async(second)
    assert result == 4
    # The turn before is replayed from its snapshot: what it has recorded is not asked for again.
    assert asked == [0, 1, 2, 2, 3]
    assert [entry.kind for entry in history].count("salvaged") == 1


@pytest.mark.parametrize("lost", [Kind.INTENT, Kind.RESULT])
def test_the_intent_of_what_must_not_be_repeated_is_never_given_up(tmp_path: Path, lost: Kind) -> None:
    path = tmp_path / "runs.db"
    stopped, done = asyncio.Event(), list[str]()

    @nl.action(name="pay", resumable=False)
    async def pay(order: str) -> str:
        done.append(order)
        return "paid"

    @nl.decision(name="hang")
    async def hang() -> None:
        if not stopped.is_set():
            stopped.set()
            await asyncio.Event().wait()

    @nl.agent(name="payer")
    async def agent() -> str:
        paid = await pay("A-1")
        await hang()
        return paid

    async def life(*, until_stopped: bool) -> State:
        async with nl.Runtime(f"sqlite:///{path}") as rt:
            run = await rt.start(agent, id="r")
            working = asyncio.create_task(rt.work(until_idle=True))
            if until_stopped:
                await stopped.wait()
                working.cancel()
            with suppress(asyncio.CancelledError):
                await working
            return await run.status()

    run_async(lambda: life(until_stopped=True))
    damage(path, "r", kinds(path, "r").index(lost))
    # Without its result the action is in doubt, without its intent the run is damaged: a person looks.
    state = run_async(lambda: life(until_stopped=False))
    assert state is not State.COMPLETED
    assert done == ["A-1"]
    store = SqliteStore(path)
    assert len(store.list_inbox(run="r")) == 1
    store.close()
