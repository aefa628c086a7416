"""The plays on Nine Lives."""

from __future__ import annotations

import asyncio
import marshal
import os
import time
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ninelives as nl
from benchmarks.programs import play
from benchmarks.programs.play import KILLED_IN, STEPS, Numbers
from ninelives.engine.commit.committer import end_process
from ninelives.runtime import ProcessOptions

_doom = play.Doom()
_times: list[float] = []


@nl.action(name="bench.step")
async def step(number: int) -> str:
    """Give 1 KiB."""
    return play.text()


@nl.decision(name="bench.model")
async def model(number: int, milliseconds: int) -> str:
    """Answer after a while."""
    if milliseconds:
        await asyncio.sleep(milliseconds / 1000)
    return play.text()


async def bare(steps: int, milliseconds: int) -> float:
    """Return the seconds that the model alone takes for so many answers, with nobody around it."""
    began = time.perf_counter()
    if milliseconds:
        for _ in range(steps):
            await asyncio.sleep(milliseconds / 1000)
    return time.perf_counter() - began


@nl.agent(name="bench.sequence")
async def sequence(steps: int) -> int:
    """Take one step after the other."""
    for number in range(steps):
        await step(number)
    return steps


@nl.agent(name="bench.strict")
async def strict(steps: int, milliseconds: int) -> int:
    """Ask a model again and again; each answer is durable before it is used."""
    for number in range(steps):
        await model(number, milliseconds)
    return steps


@nl.agent(name="bench.pipelined", durability="pipelined")
async def pipelined(steps: int, milliseconds: int) -> int:
    """Ask a model again and again; answers are used while they become durable."""
    for number in range(steps):
        await model(number, milliseconds)
    return steps


@nl.action(name="bench.fatal")
async def fatal(number: int, runs: int) -> str:
    """Give 1 KiB; in the first life, wait in step 11 for all the others, and die."""
    if number == KILLED_IN and play.is_doomed():
        _doom.arrive(runs)
        await asyncio.Event().wait()
    return play.text()


@nl.agent(name="bench.twenty")
async def twenty(runs: int) -> int:
    """Do twenty steps."""
    for number in range(STEPS):
        await fatal(number, runs)
    return STEPS


@nl.decision(name="bench.answer")
async def answer(messages: list[dict[str, str]]) -> dict[str, str]:
    """Answer a conversation."""
    return {"role": "assistant", "content": play.fresh_text()}


@nl.agent(name="bench.chat")
async def chat(messages: list[dict[str, str]], goal: int, is_handed_on: bool) -> Any:
    """Talk until there are so many messages; with `is_handed_on` each exchange is a turn of its own."""
    while len(messages) < goal:
        _times.append(time.perf_counter())
        messages = [*messages, {"role": "user", "content": await question()}]
        messages.append(await answer(messages))
        if is_handed_on and len(messages) < goal:
            return nl.next_turn(messages, goal, is_handed_on)
    return len(messages)


@nl.action(name="bench.question")
async def question() -> str:
    """Give what the person says."""
    return play.fresh_text()


@nl.agent(name="bench.approved")
async def approved(number: int) -> float:
    """Wait for a yes; return when it came."""
    await nl.ask("May I?", ["yes", "no"])
    return time.time()


@nl.agent(name="bench.long")
async def long(steps: int) -> float:
    """Take many steps, wait, and return when we came past the last of them again."""
    for number in range(steps):
        await step(number)
    _times.append(time.perf_counter())
    await nl.receive("go")
    return time.perf_counter()


@nl.action(name="bench.mark")
async def mark(number: int) -> int:
    """Note in the ledger that this step begins, and take a while."""
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    line = f"{now} {nl.info().run} {number} {os.getpid()}\n".encode()
    ledger = os.open(os.environ["BENCH_LEDGER"], os.O_WRONLY | os.O_APPEND)
    os.write(ledger, line)
    os.close(ledger)
    await asyncio.sleep(0.05)
    return number


@nl.agent(name="bench.toil")
async def toil(first: int) -> Any:
    """Do marked steps for ever, a hundred a turn: the last trial has no more to replay than the first."""
    for number in range(first, first + 100):
        await mark(number)
    return nl.next_turn(first + 100)


@nl.action(name="bench.note")
async def note() -> str:
    """Take a small step."""
    return "noted"


@nl.agent(name="bench.waiter")
async def waiter(number: int) -> float:
    """Take a step, wait for a signal; return when it came."""
    await note()
    await nl.receive("go")
    return time.time()


@nl.agent(name="bench.sleeper")
async def sleeper(number: int) -> float:
    """Sleep; return how late we woke, in seconds."""
    due = nl.now() + timedelta(seconds=1)
    await nl.sleep_until(due)
    return time.time() - due.timestamp()


@nl.agent(name="bench.fresh")
async def fresh() -> float:
    """Return at once."""
    return time.time()


def runtime_of(url: str) -> nl.Runtime:
    """Return a runtime as `nl.run` makes it: nobody else is on its event loop."""
    return nl.Runtime(url, process=ProcessOptions(fatal=end_process, is_dedicated=True))


def _timed_run(url: str, agent: Any, *arguments: int) -> dict[str, float]:
    """Return the seconds of one run, after another like it."""

    async def main() -> dict[str, float]:
        async with runtime_of(url) as rt:
            await rt.run(agent, *arguments)
            began = time.perf_counter()
            assert await rt.run(agent, *arguments) == arguments[0]
            return {"seconds": time.perf_counter() - began}

    return asyncio.run(main())


def play_sequence(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One run of so many steps."""
    return _timed_run(url, sequence, numbers["steps"])


def play_models(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One run of so many decisions, strict or pipelined; and the seconds of their model alone."""
    agent = pipelined if numbers.get("pipelined") else strict
    steps, milliseconds = numbers["steps"], numbers["milliseconds"]
    alone = asyncio.run(bare(steps, milliseconds))
    return {**_timed_run(url, agent, steps, milliseconds), "bare": alone}


def play_many(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Many runs at once, from the first start to the last result."""
    runs, steps = numbers["runs"], numbers["steps"]

    async def main() -> dict[str, float]:
        async with nl.Runtime(url) as rt:
            await rt.run(sequence, 10)
            began = time.perf_counter()
            started = await asyncio.gather(*(rt.start(sequence, steps) for _ in range(runs)))
            await rt.work(concurrency=runs, until_idle=True)
            assert [await one.result() for one in started] == [steps] * runs
            return {"seconds": time.perf_counter() - began}

    return asyncio.run(main())


async def _beside_worker(rt: nl.Runtime, work: Coroutine[Any, Any, None], concurrency: int = 100) -> float:
    working = asyncio.create_task(rt.work(concurrency))
    began = time.perf_counter()
    await work
    took = time.perf_counter() - began
    working.cancel()
    await asyncio.wait([working])
    return took


def play_singles(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One-step runs, each started when the one before it has ended."""

    async def main() -> dict[str, float]:
        async with nl.Runtime(url) as rt:
            await rt.run(sequence, 10)

            async def one_by_one() -> None:
                for _ in range(numbers["runs"]):
                    assert await (await rt.start(sequence, 1)).result() == 1

            return {"seconds": await _beside_worker(rt, one_by_one())}

    return asyncio.run(main())


def play_twenty(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Start runs and die in their step 11, or go on with them until all are complete."""
    runs = numbers["runs"]

    async def main() -> None:
        async with nl.Runtime(url) as rt:
            started = await asyncio.gather(
                *(rt.start(twenty, runs, id=f"run-{number}") for number in range(runs))
            )

            async def ended() -> None:
                assert [await run.result() for run in started] == [STEPS] * runs

            await _beside_worker(rt, ended(), runs)

    asyncio.run(main())
    return {}


def play_chat(url: str, numbers: Numbers) -> Mapping[str, object]:
    """A conversation; the seconds of each turn."""

    async def main() -> None:
        async with runtime_of(url) as rt:
            is_handed_on = bool(numbers.get("turns"))
            assert await rt.run(chat, [], numbers["messages"], is_handed_on) == numbers["messages"]

    asyncio.run(main())
    _times.append(time.perf_counter())
    return {"turns": [after - before for before, after in pairwise(_times)]}


def play_waking(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Approvals given here to runs that wait in another process: seconds until each goes on."""

    async def main() -> list[float]:
        async with nl.Runtime(url) as rt:
            waits = []
            for number in range(numbers["runs"]):
                run = await rt.start(approved, number)
                while await run.status() != "checkpointed":  # noqa: ASYNC110 (it is another process's)
                    await asyncio.sleep(0.005)
                await asyncio.sleep(0.1)  # as long as the others are given
                items = await rt.inbox(run.id)
                sent = time.time()
                await items[0].answer("yes", by="bench")
                waits.append(await run.result() - sent)
            return waits

    return {"waits": asyncio.run(main())}


def play_work(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Be a worker; with `until_idle`, from the moment that a line comes in until nothing is left."""
    is_short = bool(numbers.get("until_idle"))

    async def main() -> None:
        async with nl.Runtime(url) as rt:
            if is_short:
                os.write(1, b"ready\n")
                os.read(0, 1)
            await rt.work(concurrency=numbers.get("concurrency", 100), until_idle=is_short)

    asyncio.run(main())
    return {}


def play_once(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One run of one step, in a process of its own."""
    assert nl.run(sequence, 1, store=url) == 1
    return {}


def play_long(url: str, numbers: Numbers) -> Mapping[str, object]:
    """A run of many steps; a second process says how long it takes to come past them again."""

    async def main() -> dict[str, float]:
        async with nl.Runtime(url) as rt:
            run = await rt.start(long, numbers["steps"], id="long")
            if numbers.get("again"):
                await run.signal("go")
            began = time.perf_counter()
            await rt.work(until_idle=True)
            return {"seconds": _times[-1] - began}

    return asyncio.run(main())


def play_weight(url: str, numbers: Numbers) -> Mapping[str, object]:
    """What is installed for it on this store, with the bytecode of all of it, as pip compiles it."""
    package = Path(nl.__file__).parent
    files = [path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    own = sum(path.stat().st_size + _bytecode_bytes(path) for path in files)
    return {"bytes": own + play.weight("apsw", "msgspec", "rich", "typer", *_CLIENTS[urlsplit(url).scheme])}


_CLIENTS = {"sqlite": (), "postgresql": ("psycopg", "psycopg-binary"), "redis": ("redis",)}
_PYC_HEADER_BYTES = 16


def _bytecode_bytes(path: Path) -> int:
    if path.suffix != ".py":
        return 0
    return _PYC_HEADER_BYTES + len(marshal.dumps(compile(path.read_bytes(), str(path), "exec")))


PLAYS = {
    "sequence": play_sequence,
    "models": play_models,
    "many": play_many,
    "singles": play_singles,
    "twenty": play_twenty,
    "chat": play_chat,
    "waking": play_waking,
    "work": play_work,
    "once": play_once,
    "long": play_long,
    "weight": play_weight,
}

if __name__ == "__main__":
    play.perform(PLAYS)
