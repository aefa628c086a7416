"""Agents that ask models with the real clients, plain and hedged; for the environment of the clients."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import ninelives as nl
from benchmarks.model_calls import draw, median, table
from benchmarks.model_server import OPENAI

WORKERS = 20
MESSAGES: Any = [{"role": "user", "content": "May order 12 be refunded?"}]
_open_ai: Any = None
_anthropic: Any = None

Rows = dict[str, tuple[list[float], float]]


async def openai_answer(number: int) -> str:
    """Ask OpenAI's client."""
    asked_openai.append(time.perf_counter())
    found = await _open_ai.chat.completions.create(model="gpt-4o", messages=MESSAGES, seed=number)
    return str(found.choices[0].message.content)


async def anthropic_answer(number: int) -> str:
    """Ask Anthropic's client."""
    found = await _anthropic.messages.create(model="claude-sonnet-4-5", max_tokens=100, messages=MESSAGES)
    return str(found.content[0].text)


async def nothing(number: int) -> str:
    """Answer at once."""
    return "yes"


HEDGE = nl.Hedge(after="p95", most=2, budget=0.05)
openai_plain = nl.decision(openai_answer, name="openai.plain")
openai_hedged = nl.decision(openai_answer, name="openai.hedged", hedge=HEDGE)
anthropic_plain = nl.decision(anthropic_answer, name="anthropic.plain")
anthropic_hedged = nl.decision(anthropic_answer, name="anthropic.hedged", hedge=HEDGE)
sick_plain = nl.decision(openai_answer, name="sick.plain")
sick_hedged = nl.decision(openai_answer, name="sick.hedged", alternatives=[anthropic_answer], hedge=HEDGE)
sick_guarded = nl.decision(
    openai_answer,
    name="sick.guarded",
    alternatives=[anthropic_answer],
    hedge=HEDGE,
    breaker=nl.Breaker(slow="4x", open="10s"),
)
bare_plain = nl.decision(nothing, name="bare.plain")
bare_hedged = nl.decision(nothing, name="bare.hedged", hedge=HEDGE)
asked_openai: list[float] = []
moments: list[tuple[float, float]] = []
"""When each call began, and how long it took."""


def asking(name: str, step: Any) -> Any:
    """Declare an agent that asks again and again, and notes how long each answer took."""

    async def agent(first: int, calls: int) -> int:
        for number in range(first, first + calls):
            began = time.perf_counter()
            await step(number)
            moments.append((began, time.perf_counter() - began))
        return calls

    return nl.agent(name=name)(agent)


AGENTS = {
    name: asking(name, step)
    for name, step in {
        "OpenAI, plain": openai_plain,
        "OpenAI, hedged": openai_hedged,
        "Anthropic, plain": anthropic_plain,
        "Anthropic, hedged": anthropic_hedged,
        "plain": sick_plain,
        "hedged to the other": sick_hedged,
        "hedged, with a breaker": sick_guarded,
        "nothing declared": bare_plain,
        "hedge declared": bare_hedged,
    }.items()
}


class Server:
    """The model server: a process of its own."""

    def __init__(self, seed: int) -> None:
        words = [sys.executable, "-m", "benchmarks.model_server", str(seed)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{int(self._line())}"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def command(self, line: str) -> str:
        """Send a command; return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._line()

    def count(self) -> int:
        """Return how many requests came since the last time."""
        return sum(json.loads(self.command("count")).values())

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


def connect(url: str) -> None:
    """Make the clients."""
    global _open_ai, _anthropic  # noqa: PLW0603
    retries = {"max_retries": 0, "timeout": 60}
    _open_ai = importlib.import_module("openai").AsyncOpenAI(api_key="none", base_url=f"{url}/v1", **retries)
    _anthropic = importlib.import_module("anthropic").AsyncAnthropic(api_key="none", base_url=url, **retries)


async def played(rt: nl.Runtime, name: str, calls: int) -> list[tuple[float, float]]:
    """Make calls in many runs at once; return when each began, and how long it took."""
    moments.clear()
    each = max(1, calls // WORKERS)
    started = [await rt.start(AGENTS[name], one * each, each) for one in range(WORKERS)]
    await rt.work(concurrency=WORKERS, until_idle=True)
    for one in started:
        await one.result()
    return sorted(moments)


async def latencies(rt: nl.Runtime, server: Server, names: list[str], calls: int, rounds: int) -> Rows:
    """Return the latencies of each way of asking, in turns, and the requests that the server counted."""
    found: Rows = {name: ([], 0.0) for name in names}
    for name in names:
        await played(rt, name, 200)  # the window of latencies fills
    for _ in range(rounds):
        for name in names:
            server.count()
            seconds = [one for _, one in await played(rt, name, calls // rounds)]
            found[name] = (found[name][0] + seconds, found[name][1] + server.count())
    return found


async def brown_out(rt: nl.Runtime, server: Server, calls: int) -> tuple[Rows, float]:
    """A fifth of one provider's answers take eight times as long; the other is well.

    Return the latencies, and after how many seconds the breaker had switched to the other for good.
    """
    found: Rows = {}
    switched = 0.0
    for name in ("plain", "hedged to the other", "hedged, with a breaker"):
        server.command(f"slow {OPENAI} 0")
        await played(rt, name, 400)
        server.command(f"slow {OPENAI} 0.2")
        server.count()
        seen = await played(rt, name, calls)
        requests = json.loads(server.command("count"))
        found[name] = ([seconds for _, seconds in seen], sum(requests.values()))
        if name == "hedged, with a breaker":
            # Its rest takes 10 s; then one call tries it.
            switched = max(at - seen[0][0] for at in asked_openai if seen[0][0] <= at < seen[0][0] + 9)
    server.command(f"slow {OPENAI} 0")
    return found, switched


async def overhead(rt: nl.Runtime, calls: int, rounds: int) -> tuple[float, float]:
    """Return what a call costs in microseconds: with nothing declared, and with a hedge that is not used."""
    figures: dict[str, list[float]] = {"nothing declared": [], "hedge declared": []}
    for _ in range(rounds + 1):
        for name, values in figures.items():
            began = time.perf_counter()
            await rt.run(AGENTS[name], 0, calls)
            values.append((time.perf_counter() - began) / calls * 1e6)
    return median(figures["nothing declared"][1:]), median(figures["hedge declared"][1:])


async def measure(folder: Path, calls: int, rounds: int) -> None:
    """Measure everything, and print it."""
    with closing(Server(1)) as server, suppress(asyncio.CancelledError):
        connect(server.url)
        async with nl.Runtime(f"sqlite:///{folder / 'runs.db'}") as rt:
            for client in ("OpenAI", "Anthropic"):
                rows = await latencies(rt, server, [f"{client}, plain", f"{client}, hedged"], calls, rounds)
                print(f"\n{client}'s client, {calls:,} calls of each\n\n{table(rows)}")
                draw(f"models-{client.lower()}", f"{client}: answers that take long", rows)
            rows, switched = await brown_out(rt, server, max(2_000, calls // 4))
            print(
                f"\nA brown-out: a fifth of one provider's answers take eight times as long\n\n{table(rows)}"
            )
            print(f"\nThe breaker had switched after {switched:.1f} s.")
            draw("models-brown-out", "A brown-out of one provider", rows)
        async with nl.Runtime("memory:") as rt:
            plain, hedged = await overhead(rt, 2_000, rounds)
            print(f"\nA call, nothing hedged: {plain:.1f} µs; with hedge=: {hedged - plain:+.1f} µs")
