"""`ninelives run`: start a run or go on with it, work on it here, and print its result.

Killed at any moment, the same command goes on where it was; a store that goes away in the middle is waited
for. Ctrl-C and SIGTERM end the session first, so that they cost no life; a second one ends the process at
once, which is as good as a kill.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
from contextlib import suppress
from typing import Any

import msgspec
import typer
from msgspec import Raw, Struct

from ninelives.cli.commands.inbox import tell_item, tell_waiting, waits
from ninelives.cli.hints import command
from ninelives.cli.options import EXIT_FAILED, EXIT_PERSON, EXIT_STORE
from ninelives.cli.output import emit_json, say
from ninelives.core.errors import RunError, StoreUnavailable
from ninelives.core.ids import check_id
from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.engine.spec.registry import Agent
from ninelives.ops import doctor
from ninelives.runtime import Runtime
from ninelives.runtime import target as load
from ninelives.runtime.script import insist, outlast
from ninelives.store import Store
from ninelives.views import records_text, sessions
from ninelives.views.checkpoint import steps_in
from ninelives.views.escape import shown
from ninelives.views.inbox_text import entry
from ninelives.views.position import Position, position
from ninelives.views.sessions import SessionLife

_STOP_SECONDS = 3.0
_UNFINISHED = tuple(state for state in State if not state.is_final)
_MOST_CHILDREN = 1_000


class RunCommand(Struct, frozen=True, kw_only=True):
    """What was asked for."""

    agent: Agent
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    id: str
    url: str
    again: str
    is_named: bool


class RunEnd(Struct, frozen=True, kw_only=True):
    """How it came out, for machines."""

    run: str
    agent: str
    status: State
    resumed: bool
    replayed: int
    result: Raw | None
    error: records_text.Failed | None
    waits: str
    inbox: list[str]


def run(
    target: str,
    words: list[str],
    *,
    named: list[str],
    id: str | None,
    url: str,
    as_json: bool,
) -> None:
    """Start or resume a run; see the module."""
    agent = load.agent(target)
    args, kwargs = load.arguments(agent, words, named)
    name = check_id(id, "run id") if id is not None else f"{agent.name[:200]}-{secrets.token_hex(6)}"
    options = [word for text in named for word in ("--arg", text)]
    again = command(["run", target, "--id", name, *options], url, "--", *words)
    order = RunCommand(
        agent=agent, args=args, kwargs=kwargs, id=name, url=url, again=again, is_named=id is not None
    )
    found, replayed = asyncio.run(_main(order))
    raise typer.Exit(_tell(found, replayed, order, as_json=as_json))


async def _main(order: RunCommand) -> tuple[Position, int | None]:
    """Do what was asked; returns where the run is then, and how many steps are replayed (None: it is new)."""
    runtime = Runtime(order.url)
    # A command has nothing that could outlive a broken store, and nobody else on its event loop.
    runtime._fatal, runtime._is_dedicated = _end_broken, True  # noqa: SLF001
    async with runtime:
        await runtime.call(doctor.prove)
        replayed = await runtime.call(_announce, order)
        await _Work(runtime, order).main()
        found, _ = await outlast(lambda: runtime.call(position, order.id), say)
        if not found.status.is_final:
            await outlast(lambda: runtime.call(_tell_children, order.id, order.url), say)
        return found, replayed


def _announce(store: Store, order: RunCommand) -> int | None:
    """Say what is about to happen; returns how many steps are replayed, None when the run is new."""
    known = store.read_run(order.id)
    if known is None:
        if not order.is_named:
            say(f"run {order.id}")
        return None
    asked = order.agent.fingerprint(order.args, order.kwargs).digest
    if (known.agent, known.fingerprint) != (order.agent.name, asked):
        return 0  # another run has the id: that is refused, and all there is to say
    steps = steps_in(store.load_journal(order.id).records)
    if known.state.is_final:
        say(f"run {order.id!r} has {known.state} before; nothing is executed again")
        return 0
    owner = sessions.seen(store).get(known.session or "")
    if owner is not None and owner.state is SessionLife.ALIVE:
        say(f"run {order.id!r} is being worked on by session {owner.id}; waiting for it")
        return 0
    turn = f" of turn {known.turn}" if known.turn else ""
    say(
        f"resumed run {order.id!r}: {steps} recorded steps{turn} replayed; no effect among them is done again"
    )
    return steps


class _Work:
    """Work on one run until it ends, waits for a person, or we are told to stop."""

    def __init__(self, runtime: Runtime, order: RunCommand) -> None:
        self._runtime, self._order = runtime, order
        self._stopped: int | None = None
        self._told = ""

    async def main(self) -> None:
        """Work; does not return when a signal stops it."""
        _show_log_lines()
        loop = asyncio.get_running_loop()
        working = asyncio.create_task(self._work())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda found, _: self._stop(found, loop, working))
        waiting = asyncio.create_task(self._until_a_person_is_needed())
        done, _ = await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        for task in (working, waiting):
            task.cancel()
        await asyncio.wait({working, waiting}, timeout=_STOP_SECONDS)
        if self._stopped is not None:
            self._leave(self._stopped)
        for task in done:
            task.result()

    async def _work(self) -> None:
        order = self._order
        with suppress(RunError):  # how it ended is read from the store
            await insist(self._runtime, order.agent.name, order.args, order.id, order.kwargs, say=say)

    async def _until_a_person_is_needed(self) -> None:
        async def condition() -> bool | None:
            with suppress(StoreUnavailable):  # who works says so
                return await self._runtime.call(self._needs_person) or None
            return None

        await self._runtime.until(condition)

    def _needs_person(self, store: Store) -> bool:
        row = store.read_run(self._order.id)
        if row is None or row.state is not State.CHECKPOINTED:
            return row is not None and row.state is State.PENDING and row.paused
        if row.paused or _waits_for_person(store, row):
            return True
        is_due = row.due_ms is not None and row.due_ms <= store.now_ms()  # it has been answered, say
        if row.waits and row.waits != self._told and not is_due:
            self._told = row.waits
            say(f"run {row.id!r} waits {row.waits}")
            for item in store.list_inbox(run=row.id):
                one = entry(item)
                tell_item(one.kind, one.id, one.what, one.takes, self._order.url)
        return False

    def _stop(self, number: int, loop: asyncio.AbstractEventLoop, working: asyncio.Task[None]) -> None:
        if self._stopped is not None:
            self._leave(number)
        self._stopped = number
        loop.call_soon_threadsafe(working.cancel)

    def _leave(self, number: int) -> None:
        """End the process without waiting for threads of the agent: what is durable is durable."""
        with suppress(OSError, AttributeError, ValueError):
            sys.stdout.flush()
        say(f"stopped; to go on: {self._order.again}")
        os._exit(128 + number)


def _waits_for_person(store: Store, row: RunRow) -> bool:
    """Tell whether a run that is not being executed, or each child that it waits for, waits for a person."""
    if row.state is State.ESCALATED:
        return True
    if row.state is not State.CHECKPOINTED:
        return False
    if any(row.due_ms in (None, item.deadline_ms) for item in store.list_inbox(run=row.id)):
        return True
    children = _children(store, row.id) if row.due_ms is None else []
    return bool(children) and all(_waits_for_person(store, child) for child in children)


def _children(store: Store, run: str) -> list[RunRow]:
    """Return the children that have not ended."""
    return store.list_runs(RunQuery(parent=run, states=_UNFINISHED, limit=_MOST_CHILDREN))


def _tell_children(store: Store, run: str, url: str) -> None:
    """Say what the children of a run ask, and how to answer."""
    for child in _children(store, run):
        for item in store.list_inbox(run=child.id):
            one = entry(item)
            what = f"{one.what} (asked by run {one.run!r})"
            tell_item(one.kind, one.id, what, one.takes, url)
        _tell_children(store, child.id, url)


def _end_broken(error: BaseException) -> None:
    """End the process at once: whether the last write is durable is unknown, and nothing may rest on it."""
    os.write(2, f"ninelives: {type(error).__name__}: {shown(str(error))}\n".encode(errors="replace"))
    os._exit(EXIT_STORE)


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {shown(record.getMessage())}"


def _show_log_lines() -> None:
    """Show what `nl.log` says on stderr, unless the agent's own module has set up logging."""
    logger = logging.getLogger("ninelives.run")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(_Lines())
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


def _tell(found: Position, replayed: int | None, order: RunCommand, *, as_json: bool) -> int:
    """Print how it came out; returns the exit code."""
    if as_json:
        outcome = RunEnd(
            run=found.id,
            agent=found.agent,
            status=found.status,
            resumed=replayed is not None,
            replayed=replayed or 0,
            result=found.result,
            error=found.last_error if found.status is State.FAILED else None,
            waits=waits(found) if not found.status.is_final else "",
            inbox=[item.id for item in found.inbox],
        )
        emit_json(msgspec.json.encode(outcome))
    if found.status is State.COMPLETED:
        if not as_json and found.result is not None:
            emit_json(bytes(found.result))
        elif found.result is None:
            say(f"run {found.id!r} has completed, and its journal has been pruned: the result is gone")
        return 0
    look = command(["show", found.id], order.url)
    if found.status in (State.FAILED, State.CANCELLED):
        say(f"run {found.id!r} {found.status}" + _why(found))
        say(f"look at it with: {look}")
        if found.status is State.FAILED:
            say(f"once the cause is mended: {command(['retry', found.id], order.url)}")
        return EXIT_FAILED
    tell_waiting(found, order.url)
    say(f"look at it with: {look}")
    say(f"then go on with: {order.again}")
    return EXIT_PERSON


def _why(found: Position) -> str:
    failed = found.last_error
    if failed is None or found.status is State.CANCELLED:
        return ""
    return f": {failed}" + (f" (in step {failed.step})" if failed.step else "")
