"""`ninelives start`: create a run durably and leave it to a worker.

When the id has been printed, the run is durable. If we die before, the run exists or it does not; starting
again with the same id creates it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import typer

from ninelives.cli.commands.inbox import say_waiting
from ninelives.cli.commands.ps import label_of
from ninelives.cli.options import EXIT_PERSON, to_be_created
from ninelives.cli.output import emit, emit_json, say_created
from ninelives.core.model.run import State
from ninelives.ops import doctor
from ninelives.runtime import Runtime
from ninelives.runtime import target as load
from ninelives.views.escape import shown
from ninelives.views.position import Position, position


def start(
    target: str,
    words: list[str],
    *,
    named: list[str],
    id: str | None,
    url: str,
    delay: float = 0,
    priority: int = 0,
    labels: Sequence[str] = (),
    as_json: bool,
) -> None:
    """Start a run; see the module's docstring."""
    agent = load.agent(target)
    args, kwargs = load.arguments(agent, words, named)
    options: dict[str, Any] = {
        "id": id,
        "kwargs": kwargs,
        "delay": delay or None,
        "priority": priority,
        "labels": dict(label_of(label) for label in labels),
    }

    async def main() -> Position:
        new_store = to_be_created(url)
        async with Runtime(url, policy=()) as runtime:
            await runtime.call(doctor.prove)
            say_created(new_store)
            run = await runtime.start(agent.name, *args, **options)
            found, _ = await runtime.call(position, run.id)
            return found

    found = asyncio.run(main())
    if as_json:
        emit_json({"run": found.id, "status": found.status})
    else:
        emit(shown(found.id))
    if found.status is State.ESCALATED or found.paused:
        say_waiting(found, url)
        raise typer.Exit(EXIT_PERSON)
