"""What a worker does is counted by plain integers, which ride on renewals and on the session's end."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import ninelives as nl
from ninelives.stores.clock import SystemClock
from ninelives.stores.memory import MemoryStore


@nl.decision(name="counts.think")
async def think() -> dict[str, object]:
    """Return an answer that reports its tokens."""
    return {"text": "yes", "usage": {"input_tokens": 7, "output_tokens": 3}}


@nl.action(name="counts.plain")
async def plain() -> int:
    """Return a number."""
    return 1


@nl.action(name="counts.looks", reads_only=True)
async def looks() -> int:
    """Return a number."""
    return 1


@nl.action(name="counts.fails", retry=nl.Retry(attempts=1))
async def fails() -> int:
    """Raise an error."""
    raise ValueError("no")


@nl.action(name="counts.once", resumable=False)
async def once() -> int:
    """Return a number."""
    return 1


@nl.action(name="counts.keyed", key="counts:{name}")
async def keyed(name: str) -> int:
    """Return a number."""
    return 1


@nl.agent(name="counts.agent")
async def agent(name: str) -> int:
    """Do one of each kind."""
    await think()
    await plain()
    await looks()
    with suppress(ValueError):
        await fails()
    await once()
    return await keyed(name)


def counted(store: MemoryStore) -> dict[str, int]:
    """Return the counters of steps, by name and kind."""
    return {
        " ".join(
            [one.name, *(one.labels[label] for label in sorted(one.labels) if label != "agent")]
        ): one.value
        for one in store.read_counters()
        if one.name in ("decisions", "actions", "tokens")
    }


def test_each_kind_of_step_is_counted_once_and_kept_after_the_session() -> None:
    store = MemoryStore(SystemClock())

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            await asyncio.gather(*(rt.run(agent, name) for name in "ab"))

    asyncio.run(main())
    assert store.list_sessions() == []
    assert counted(store) == {
        "actions keyed": 2,
        "actions once": 2,
        "actions read": 2,
        "actions resumable": 4,
        "decisions": 2,
        "tokens in": 14,
        "tokens out": 6,
    }


def test_what_is_replayed_is_not_counted_again() -> None:
    store = MemoryStore(SystemClock())

    @nl.agent(name="counts.waits")
    async def waits() -> int:
        value = await plain()
        await nl.receive("go", type=int)
        return value + await plain()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            working = asyncio.create_task(rt.run(waits, id="w"))
            while (row := store.read_run("w")) is None or row.state.value != "checkpointed":  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            await (await rt.get("w")).signal("go", 1)
            assert await working == 2

    asyncio.run(main())
    assert counted(store) == {"actions resumable": 2}
