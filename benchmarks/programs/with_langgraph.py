"""The plays on LangGraph, for its own environment: a graph whose node is a step, checkpointed after each.

Nobody restarts what has died: the next process asks for each thread again, as its documentation says.
"""

from __future__ import annotations

import asyncio
import importlib
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from typing import Annotated, Any, TypedDict
from urllib.parse import urlsplit

from benchmarks.programs import play
from benchmarks.programs.play import KILLED_IN, STEPS, Numbers

_graphs: Any = importlib.import_module("langgraph.graph")
add_messages: Any = _graphs.add_messages
DeltaChannel: Any = importlib.import_module("langgraph.channels").DeltaChannel
_doom = play.Doom()


class State(TypedDict):
    """What is checkpointed of a run."""

    number: int
    goal: int
    runs: int
    text: str


class Talk(TypedDict):
    """What is checkpointed of a conversation: all of it, each time."""

    messages: Annotated[list[Any], add_messages]


def _extended(messages: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*messages, *(message for write in writes for message in write)]


class DeltaTalk(TypedDict):
    """What is checkpointed of a conversation: what is new, and all of it after every hundred updates."""

    messages: Annotated[list[Any], DeltaChannel(_extended)]


def step(state: State) -> dict[str, object]:
    """Give 1 KiB."""
    return {"number": state["number"] + 1, "text": play.text()}


async def fatal(state: State) -> dict[str, object]:
    """Give 1 KiB; in the first life, wait in step 11 for all the others, and die."""
    if state["number"] == KILLED_IN and state["runs"] and play.is_doomed():
        _doom.arrive(state["runs"])
        await asyncio.Event().wait()
    return step(state)


def answer(state: Any) -> dict[str, object]:
    """Answer a conversation of either kind."""
    return {"messages": [("ai", play.fresh_text())]}


def _built(saver: Any, node: Callable[..., object], kind: type) -> Any:
    graph = _graphs.StateGraph(kind)
    graph.add_node("step", node)
    graph.add_edge(_graphs.START, "step")
    if kind is not State:
        graph.add_edge("step", _graphs.END)
    else:
        graph.add_conditional_edges("step", _next)
    return graph.compile(checkpointer=saver)


def _next(state: State) -> str:
    return "step" if state["number"] < state["goal"] else str(_graphs.END)


@contextmanager
def _saver(url: str) -> Iterator[Any]:
    if url.startswith("sqlite"):
        connection = sqlite3.connect(urlsplit(url).path, check_same_thread=False)
        yield importlib.import_module("langgraph.checkpoint.sqlite").SqliteSaver(connection)
        connection.close()
        return
    with importlib.import_module("langgraph.checkpoint.postgres").PostgresSaver.from_conn_string(
        url
    ) as saver:
        saver.setup()
        yield saver


@asynccontextmanager
async def _async_saver(url: str) -> AsyncIterator[Any]:
    if url.startswith("sqlite"):
        savers = importlib.import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver
        async with savers.from_conn_string(urlsplit(url).path) as saver:
            yield saver
        return
    savers = importlib.import_module("langgraph.checkpoint.postgres.aio").AsyncPostgresSaver
    pools = importlib.import_module("psycopg_pool").AsyncConnectionPool
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": _dict_row()}
    async with pools(url, kwargs=settings, min_size=10, max_size=20) as pool:
        saver = savers(pool)
        await saver.setup()
        yield saver


def _dict_row() -> Any:
    return importlib.import_module("psycopg.rows").dict_row


def _asked(thread: str, goal: int) -> dict[str, object]:
    config = {"configurable": {"thread_id": thread}, "recursion_limit": goal + 10}
    return {"config": config, "durability": "sync"}


def _start(goal: int, runs: int = 0) -> State:
    return {"number": 0, "goal": goal, "runs": runs, "text": ""}


def play_sequence(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One run of so many steps."""
    with _saver(url) as saver:
        graph, steps = _built(saver, step, State), numbers["steps"]
        graph.invoke(_start(steps), **_asked("warm", steps))
        began = time.perf_counter()
        assert graph.invoke(_start(steps), **_asked("run", steps))["number"] == steps
        return {"seconds": time.perf_counter() - began}


def _in_loop(url: str, main: Callable[[Any], Awaitable[float]]) -> Mapping[str, object]:
    async def run() -> float:
        async with _async_saver(url) as saver:
            return await main(_built(saver, fatal, State))

    return {"seconds": asyncio.run(run())}


def play_many(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Many runs at once, from the first start to the last result."""
    steps = numbers["steps"]

    async def main(graph: Any) -> float:
        await graph.ainvoke(_start(10), **_asked("warm", 10))
        began = time.perf_counter()
        await asyncio.gather(
            *(graph.ainvoke(_start(steps), **_asked(f"run-{n}", steps)) for n in range(numbers["runs"]))
        )
        return time.perf_counter() - began

    return _in_loop(url, main)


def play_singles(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One-step runs, each started when the one before it has ended."""
    with _saver(url) as saver:
        graph = _built(saver, step, State)
        graph.invoke(_start(10), **_asked("warm", 10))
        began = time.perf_counter()
        for number in range(numbers["runs"]):
            graph.invoke(_start(1), **_asked(f"run-{number}", 1))
        return {"seconds": time.perf_counter() - began}


def play_twenty(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Start runs and die in their step 11, or ask for each of them again."""
    runs = numbers["runs"]

    async def main(graph: Any) -> float:
        given = _start(STEPS, runs) if play.is_doomed() else None
        ended = await asyncio.gather(
            *(graph.ainvoke(given, **_asked(f"run-{number}", STEPS)) for number in range(runs))
        )
        assert [state["number"] for state in ended] == [STEPS] * runs
        return 0.0

    return _in_loop(url, main)


def play_chat(url: str, numbers: Numbers) -> Mapping[str, object]:
    """A conversation, with `delta` one that is checkpointed by what is new; the seconds of each turn."""
    times, kind = [], DeltaTalk if numbers.get("delta") else Talk
    with _saver(url) as saver:
        graph = _built(saver, answer, kind)
        for _ in range(numbers["messages"] // 2):
            times.append(time.perf_counter())
            said = graph.invoke({"messages": [("user", play.fresh_text())]}, **_asked("talk", 10))
        assert len(said["messages"]) == numbers["messages"]
    times.append(time.perf_counter())
    return {"turns": [after - before for before, after in pairwise(times)]}


def play_once(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One run of one step, in a process of its own."""
    with _saver(url) as saver:
        _built(saver, step, State).invoke(_start(1), **_asked(f"once-{time.time()}", 1))
    return {}


def play_weight(url: str, numbers: Numbers) -> Mapping[str, object]:
    """What is installed for it on this store."""
    savers = {
        "sqlite": ("langgraph-checkpoint-sqlite",),
        "postgresql": ("langgraph-checkpoint-postgres", "psycopg-binary"),
    }
    return {"bytes": play.weight("langgraph", *savers[urlsplit(url).scheme])}


PLAYS = {
    "sequence": play_sequence,
    "many": play_many,
    "singles": play_singles,
    "twenty": play_twenty,
    "chat": play_chat,
    "once": play_once,
    "weight": play_weight,
}

if __name__ == "__main__":
    play.perform(PLAYS)
