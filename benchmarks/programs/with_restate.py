"""The plays on Restate, for its own environment: a service in this process, called through the server.

The URL is the server's ingress; administration is one port further, our service three.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from benchmarks.programs import play
from benchmarks.programs.play import KILLED_IN, STEPS, Numbers

_restate: Any = importlib.import_module("restate")
_httpx: Any = importlib.import_module("httpx")
_doom = play.Doom()

sequence: Any = _restate.Service("Sequence")
twenty: Any = _restate.Workflow("Twenty")
approval: Any = _restate.Workflow("Approval")


async def _sequence(context, steps):  # type: ignore[no-untyped-def]
    for _ in range(steps):
        await context.run("step", play.text)
    return steps


async def _twenty(context, runs):  # type: ignore[no-untyped-def]
    for number in range(STEPS):
        await context.run("fatal", _fatal, args=(number, runs))
    return STEPS


async def _fatal(number: int, runs: int) -> str:
    if number == KILLED_IN and play.is_doomed():
        _doom.arrive(runs)
        await asyncio.Event().wait()
    return play.text()


async def _approved(context, nothing):  # type: ignore[no-untyped-def]
    await context.promise("yes").value()
    return time.time()


async def _approve(context, nothing):  # type: ignore[no-untyped-def]
    await context.promise("yes").resolve("yes")
    return True


sequence.handler("go")(_sequence)
twenty.main("run")(_twenty)
approval.main("run")(_approved)
approval.handler("approve")(_approve)


class Ingress:
    """The server, as a client sees it."""

    def __init__(self, client: Any, url: str) -> None:
        self._client, self._url = client, url

    async def post(self, path: str, value: object) -> Any:
        """Call something and return what it returns."""
        said = await self._client.post(f"{self._url}/{path}", json=value)
        said.raise_for_status()
        return said.json()

    async def get(self, path: str) -> Any:
        """Wait for the result of something that was started."""
        said = await self._client.get(f"{self._url}/{path}")
        said.raise_for_status()
        return said.json()

    async def register(self, admin: str, service: str) -> None:
        """Tell the server where we are; waits until both are there."""
        while True:
            try:
                said = await self._client.post(f"{admin}/deployments", json={"uri": service, "force": True})
            except _httpx.TransportError:
                said = None
            if said is not None and said.is_success:
                return
            await asyncio.sleep(0.02)


def _serving(
    url: str, main: Callable[[Ingress], Awaitable[Mapping[str, object]]], *, is_known: bool = False
) -> Mapping[str, object]:
    """Serve, register unless the server knows us, and do something."""
    port = urlsplit(url).port or 0
    config = importlib.import_module("hypercorn.config").Config()
    config.bind, config.loglevel = [f"127.0.0.1:{port + 3}"], "ERROR"
    serve = importlib.import_module("hypercorn.asyncio").serve

    async def run() -> Mapping[str, object]:
        app = _restate.app(services=[sequence, twenty, approval])
        serving = asyncio.create_task(serve(app, config, shutdown_trigger=asyncio.Event().wait))
        limits = _httpx.Limits(max_connections=None)
        async with _httpx.AsyncClient(timeout=180, limits=limits, trust_env=False) as client:
            ingress = Ingress(client, url)
            if not is_known:
                await ingress.register(f"http://127.0.0.1:{port + 1}", f"http://127.0.0.1:{port + 3}")
            answer = await main(ingress)
        serving.cancel()
        return answer

    return asyncio.run(run())


def play_sequence(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One run of so many steps."""

    async def main(ingress: Ingress) -> Mapping[str, object]:
        await ingress.post("Sequence/go", numbers["steps"])
        began = time.perf_counter()
        assert await ingress.post("Sequence/go", numbers["steps"]) == numbers["steps"]
        return {"seconds": time.perf_counter() - began}

    return _serving(url, main)


def play_many(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Many runs at once, from the first start to the last result."""

    async def main(ingress: Ingress) -> Mapping[str, object]:
        await ingress.post("Sequence/go", 10)
        began = time.perf_counter()
        await asyncio.gather(*(ingress.post("Sequence/go", numbers["steps"]) for _ in range(numbers["runs"])))
        return {"seconds": time.perf_counter() - began}

    return _serving(url, main)


def play_singles(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One-step runs, each started when the one before it has ended."""

    async def main(ingress: Ingress) -> Mapping[str, object]:
        await ingress.post("Sequence/go", 10)
        began = time.perf_counter()
        for _ in range(numbers["runs"]):
            await ingress.post("Sequence/go", 1)
        return {"seconds": time.perf_counter() - began}

    return _serving(url, main)


def play_twenty(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Start runs and die in their step 11, or serve again until all are complete."""
    runs = numbers["runs"]

    async def main(ingress: Ingress) -> Mapping[str, object]:
        if play.is_doomed():
            await asyncio.gather(*(ingress.post(f"Twenty/run-{n}/run/send", runs) for n in range(runs)))
        ended = await asyncio.gather(
            *(ingress.get(f"restate/workflow/Twenty/run-{n}/attach") for n in range(runs))
        )
        assert ended == [STEPS] * runs
        return {}

    return _serving(url, main, is_known=not play.is_doomed())


def play_work(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Serve until we are killed."""

    async def main(ingress: Ingress) -> Mapping[str, object]:
        await asyncio.Event().wait()
        return {}

    return _serving(url, main)


def play_waking(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Promises resolved from here, on which runs wait in another process: seconds until each goes on."""

    async def main() -> list[float]:
        waits: list[float] = []
        async with _httpx.AsyncClient(timeout=60, trust_env=False) as client:
            ingress = Ingress(client, url)
            while len(waits) < numbers["runs"]:
                name = f"Approval/wait-{len(waits)}"
                try:
                    await ingress.post(f"{name}/run/send", None)
                except (_httpx.HTTPError, ValueError):  # until the worker has registered
                    await asyncio.sleep(0.1)
                    continue
                await asyncio.sleep(0.1)  # it waits by now
                sent = time.time()
                await ingress.post(f"{name}/approve", None)
                waits.append(await ingress.get(f"restate/workflow/{name}/attach") - sent)
        return waits

    return {"waits": asyncio.run(main())}


def play_once(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One run of one step, in a process of its own."""

    async def main(ingress: Ingress) -> Mapping[str, object]:
        assert await ingress.post("Sequence/go", 1) == 1
        return {}

    return _serving(url, main)


PLAYS = {
    "sequence": play_sequence,
    "many": play_many,
    "singles": play_singles,
    "twenty": play_twenty,
    "work": play_work,
    "waking": play_waking,
    "once": play_once,
    "weight": lambda url, numbers: {"bytes": play.weight("restate-sdk", "hypercorn") + play.node_weight()},
}

if __name__ == "__main__":
    play.perform(PLAYS)
