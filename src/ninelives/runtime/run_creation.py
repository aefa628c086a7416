"""Create runs: encode their arguments, and create concurrent starts in one transaction.

If we die before the transaction commits, none of its runs exists; starting again with the same id is safe.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from ninelives.core.ids import check_id
from ninelives.core.model.run import NewRun
from ninelives.core.model.run import RunRow as Row
from ninelives.engine.commit.sealing import inline_bytes, writing_to
from ninelives.engine.machine import machine
from ninelives.engine.spec import agent_arguments
from ninelives.engine.spec.registry import get_agent
from ninelives.runtime.store_calls import StoreCalls


async def new_run(
    runtime: StoreCalls,
    agent: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    *,
    id: str | None,
    delay: float | None = None,
    priority: int = 0,
    labels: Mapping[str, str] | None = None,
) -> NewRun:
    """Return a run to create. Large arguments are already stored as blobs; nothing else is durable yet.

    Raises UnknownAgent, NotSerializable, BadName.
    """
    declared = get_agent(agent)
    name = check_id(id, "run id") if id is not None else f"{declared.name[:200]}-{secrets.token_hex(6)}"
    named = dict(kwargs or {})
    with writing_to(runtime.store):
        body, made = agent_arguments.encode(declared, args, named)
    contents = list(made.values())
    if len(body) > inline_bytes(runtime.store):
        contents, body = [body, *contents], b""
    due_ms = await runtime.call(lambda store: store.now_ms()) + int(delay * 1000) if delay else 0
    # Before the run: a run must never refer to arguments that are not durable.
    blobs = tuple(await runtime.call(lambda store: store.put_blobs(contents))) if contents else ()
    # CRASH: blobs that no run refers to; pruning removes them.
    return NewRun(
        id=name,
        agent=declared.name,
        fingerprint=declared.fingerprint(args, named).digest,
        body=body,
        blobs=blobs,
        queue=declared.queue,
        pin=machine() if declared.is_pinned else None,
        priority=priority,
        labels=dict(labels or {}),
        due_ms=due_ms,
    )


class BatchedCreation:
    """Batches concurrent `start()` calls. Cancelling one caller does not affect the others."""

    def __init__(self, runtime: StoreCalls) -> None:
        self._runtime = runtime
        self._waiting: list[tuple[NewRun, asyncio.Future[Row]]] = []
        self._creating: set[asyncio.Task[None]] = set()

    async def create(self, new: NewRun) -> Row:
        """Create a run, or return the run that has its id. Raises UsageError; what the store raises."""
        created: asyncio.Future[Row] = asyncio.get_running_loop().create_future()
        self._waiting.append((new, created))
        if len(self._waiting) == 1:
            # The task begins in the loop's next round: all starts of this round are in the batch by then.
            task = asyncio.create_task(self._create())
            self._creating.add(task)
            task.add_done_callback(self._creating.discard)
        return await created

    async def wait_until_idle(self) -> None:
        """Wait until no run is being created."""
        if self._creating:
            await asyncio.wait(self._creating)

    async def _create(self) -> None:
        batch, self._waiting = self._waiting, []
        answers: Sequence[Row | Exception]
        try:
            answers = await self._runtime.call(lambda store: store.create_runs([new for new, _ in batch]))
        except Exception as error:  # noqa: BLE001 (every caller of the batch gets it)
            answers = [error for _ in batch]
        for (_, created), answer in zip(batch, answers, strict=True):
            if created.done():
                continue
            if isinstance(answer, Exception):
                created.set_exception(answer)
            else:
                created.set_result(answer)
