"""The plays on DBOS, for its own environment: plain functions alone, asynchronous ones together."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.programs import play
from benchmarks.programs.play import KILLED_IN, STEPS, Numbers

DBOS: Any = importlib.import_module("dbos").DBOS
SetWorkflowID: Any = importlib.import_module("dbos").SetWorkflowID
_sqlalchemy: Any = importlib.import_module("sqlalchemy.exc")
_doom = play.Doom()


def _step(number: int) -> str:
    return play.text()


async def _step_async(number: int) -> str:
    return play.text()


step = DBOS.step(name="step")(_step)
step_async = DBOS.step(name="step_async")(_step_async)


def _sequence(steps: int) -> int:
    for number in range(steps):
        step(number)
    return steps


async def _sequence_async(steps: int) -> int:
    for number in range(steps):
        await step_async(number)
    return steps


sequence = DBOS.workflow(name="sequence")(_sequence)
sequence_async = DBOS.workflow(name="sequence_async")(_sequence_async)


async def _fatal(number: int, runs: int) -> str:
    if number == KILLED_IN and play.is_doomed():
        _doom.arrive(runs)
        await asyncio.Event().wait()
    return play.text()


fatal = DBOS.step(name="fatal")(_fatal)


async def _twenty(runs: int) -> int:
    for number in range(STEPS):
        await fatal(number, runs)
    return STEPS


twenty = DBOS.workflow(name="twenty")(_twenty)


def _approved() -> float:
    DBOS.recv("yes", timeout_seconds=60)
    return time.time()


approved = DBOS.workflow(name="approved")(_approved)


def _launch(url: str) -> None:
    """Launch, which recovers what was under way."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "log_level": "ERROR",
            "run_admin_server": False,
            "notification_listener_polling_interval_sec": 0.01,
        }
    )
    DBOS.launch()


def play_sequence(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One run of so many steps."""
    _launch(url)
    sequence(numbers["steps"])
    began = time.perf_counter()
    assert sequence(numbers["steps"]) == numbers["steps"]
    return {"seconds": time.perf_counter() - began}


def play_many(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Many runs at once, from the first start to the last result."""

    async def main() -> float:
        await sequence_async(10)
        began = time.perf_counter()
        started = await asyncio.gather(
            *(DBOS.start_workflow_async(sequence_async, numbers["steps"]) for _ in range(numbers["runs"]))
        )
        for handle in started:  # in turn: it asks by polls, which cost it
            assert await handle.get_result(polling_interval_sec=0.02) == numbers["steps"]
        return time.perf_counter() - began

    _launch(url)
    return {"seconds": asyncio.run(main())}


def play_singles(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One-step runs, each started when the one before it has ended."""
    _launch(url)
    sequence(10)
    began = time.perf_counter()
    for _ in range(numbers["runs"]):
        assert sequence(1) == 1
    return {"seconds": time.perf_counter() - began}


def play_twenty(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Start runs and die in their step 11, or go on with them until all are complete."""

    async def main() -> None:
        if play.is_doomed():
            for number in range(numbers["runs"]):
                with SetWorkflowID(f"run-{number}"):
                    await DBOS.start_workflow_async(twenty, numbers["runs"])
        for number in range(numbers["runs"]):
            handle = await DBOS.retrieve_workflow_async(f"run-{number}")
            assert await handle.get_result(polling_interval_sec=0.02) == STEPS

    _launch(url)
    asyncio.run(main())
    return {}


def play_work(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Do runs that wait for a message, one after the other."""
    _launch(url)
    for number in range(numbers["runs"]):
        with SetWorkflowID(f"wait-{number}"):
            approved()
    return {}


def play_waking(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Messages sent from here to runs that wait in another process: seconds until each goes on."""
    client = importlib.import_module("dbos").DBOSClient(system_database_url=url)
    waits = []
    for number in range(numbers["runs"]):
        while not _is_known(client, f"wait-{number}"):
            time.sleep(0.02)
        time.sleep(0.1)  # it waits by now
        sent = time.time()
        client.send(f"wait-{number}", "yes", "yes")
        waits.append(client.retrieve_workflow(f"wait-{number}").get_result(polling_interval_sec=0.02) - sent)
    return {"waits": waits}


def _is_known(client: Any, id: str) -> bool:
    try:
        return bool(client.list_workflows(workflow_ids=[id]))
    except _sqlalchemy.DBAPIError:  # until the worker has made the tables
        return False


def play_once(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One run of one step, in a process of its own."""
    _launch(url)
    assert sequence(1) == 1
    return {}


PLAYS = {
    "sequence": play_sequence,
    "many": play_many,
    "singles": play_singles,
    "twenty": play_twenty,
    "once": play_once,
    "waking": play_waking,
    "work": play_work,
    "weight": lambda url, numbers: {"bytes": play.weight("dbos", "psycopg-binary")},
}

if __name__ == "__main__":
    play.perform(PLAYS)
