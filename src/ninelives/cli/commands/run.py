"""`ninelives run`: start or resume a run, work on it here, and print its result.

If we die at any moment, the same command resumes the run. If the store becomes unavailable, we wait for it.
The first Ctrl-C or SIGTERM ends the session, which costs the run no life; the second exits at once, which is
as safe as a kill.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from msgspec import Raw, Struct

from ninelives.cli.commands.inbox import say_item, say_waiting, waits
from ninelives.cli.options import (
    EXIT_FAILED,
    EXIT_PERSON,
    EXIT_STORE,
    command,
    policy_path,
    to_be_created,
    ungoverned,
)
from ninelives.cli.output import emit_json, say, say_created
from ninelives.core.errors import RunError, StoreUnavailable
from ninelives.core.ids import check_id
from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.engine.spec.registry import Agent
from ninelives.ops import doctor
from ninelives.runtime import ProcessOptions, Runtime
from ninelives.runtime import target as load
from ninelives.runtime.script import insist, outlast
from ninelives.store import Store
from ninelives.views import records_text, sessions
from ninelives.views.checkpoint import steps_in
from ninelives.views.counted import counted
from ninelives.views.escape import shown
from ninelives.views.inbox_text import entry, ways
from ninelives.views.position import Position, position
from ninelives.views.sessions import SessionLife

_STOP_SECONDS = 3.0
_UNFINISHED = tuple(state for state in State if not state.is_final)
_MOST_CHILDREN = 1_000
_PAST = {State.COMPLETED: "completed", State.FAILED: "failed", State.CANCELLED: "was cancelled"}


class RunCommand(Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    agent: Agent
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    id: str
    url: str
    again: str  # the command line that resumes the run
    is_named: bool
    policy: str


class RunEnd(Struct, frozen=True, kw_only=True):
    """The outcome, for machines."""

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
    policy: Path | None = None,
) -> None:
    """Start or resume a run; see the module's docstring."""
    agent = load.agent(target)
    args, kwargs = load.arguments(agent, words, named)
    name = check_id(id, "run id") if id is not None else f"{agent.name[:200]}-{secrets.token_hex(6)}"
    options = [word for text in named for word in ("--arg", text)]
    if policy is not None and str(policy) != os.environ.get("NINELIVES_POLICY"):
        options += ["--policy", str(policy)]  # the pasted command is governed as before
    again = command(["run", target, "--id", name, *options], url, "--", *words)
    wanted = RunCommand(
        agent=agent,
        args=args,
        kwargs=kwargs,
        id=name,
        url=url,
        again=again,
        is_named=id is not None,
        policy=policy_path(policy),
    )
    found, replayed = asyncio.run(_main(wanted))
    raise typer.Exit(_report(found, replayed, wanted, as_json=as_json))


async def _main(wanted: RunCommand) -> tuple[Position, int | None]:
    """Work on the run; return its position then, and the number of replayed steps (None: a new run)."""
    # Nothing in this process can outlive a broken store, and nothing else uses its event loop.
    options = ProcessOptions(fatal=_end_broken, is_dedicated=True)
    runtime = Runtime(wanted.url, policy=wanted.policy or (), process=options)
    new_store = to_be_created(wanted.url)
    async with runtime:
        await runtime.call(doctor.prove)
        say_created(new_store)
        if not wanted.policy and (warning := await runtime.call(ungoverned)):
            say(f"warning: {warning}")
        replayed = await runtime.call(_announce, wanted)
        await _Work(runtime, wanted).main()
        found, _ = await outlast(lambda: runtime.call(position, wanted.id), say)
        if not found.status.is_final:
            await outlast(lambda: runtime.call(_say_children, wanted.id, wanted.url), say)
        return found, replayed


def _announce(store: Store, wanted: RunCommand) -> int | None:
    """Say what is about to happen; return the number of steps to replay, None when the run is new."""
    known = store.read_run(wanted.id)
    if known is None:
        if not wanted.is_named:
            say(f"run {wanted.id}")
        return None
    fingerprint = wanted.agent.fingerprint(wanted.args, wanted.kwargs).digest
    if (known.agent, known.fingerprint) != (wanted.agent.name, fingerprint):
        return 0  # another run has this id: `Runtime.run` raises IdConflict, which says it all
    steps = steps_in(store.load_journal(wanted.id).records)
    if known.state.is_final:
        say(f"run {wanted.id!r} already {_PAST[known.state]}; nothing is executed again")
        return 0
    owner = sessions.seen(store).get(known.session or "")
    if owner is not None and owner.state is SessionLife.ALIVE:
        say(f"session {owner.id} is working on run {wanted.id!r}; waiting for it")
        return 0
    turn = f" of turn {known.turn}" if known.turn else ""
    replayed = f"{counted(steps, 'recorded step')}{turn} replayed"
    say(f"resumed run {wanted.id!r}: {replayed}; nothing of that is executed again")
    return steps


class _Work:
    """Works on one run until it ends, waits for a person, or a signal stops us."""

    def __init__(self, runtime: Runtime, wanted: RunCommand) -> None:
        self._runtime, self._wanted = runtime, wanted
        self._stopped: int | None = None
        self._reported = ""

    async def main(self) -> None:
        """Work on the run. Does not return when a signal stops us: the process exits."""
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
        one = self._wanted
        with suppress(RunError):  # the outcome is read from the store
            await insist(self._runtime, one.agent.name, one.args, one.id, one.kwargs, say=say)

    async def _until_a_person_is_needed(self) -> None:
        async def condition() -> bool | None:
            with suppress(StoreUnavailable):  # `_work` reports it
                return await self._runtime.call(self._needs_person) or None
            return None

        await self._runtime.until(condition)

    def _needs_person(self, store: Store) -> bool:
        row = store.read_run(self._wanted.id)
        if row is None or row.state is not State.CHECKPOINTED:
            return row is not None and row.state is State.PENDING and row.paused
        if row.paused or _waits_for_person(store, row):
            return True
        is_due = (
            row.due_ms is not None and row.due_ms <= store.now_ms()
        )  # for example because it was answered
        if row.waits and row.waits != self._reported and not is_due:
            self._reported = row.waits
            say(f"run {row.id!r} waits {row.waits}")
            for item in store.list_inbox(run=row.id):
                one = entry(item)
                say_item(one.kind, one.id, one.what, ways(one.takes, one.id, one.to), self._wanted.url)
        return False

    def _stop(self, number: int, loop: asyncio.AbstractEventLoop, working: asyncio.Task[None]) -> None:
        if self._stopped is not None:
            self._leave(number)
        self._stopped = number
        loop.call_soon_threadsafe(working.cancel)

    def _leave(self, number: int) -> None:
        """Exit without waiting for the agent's threads: what is durable stays durable."""
        with suppress(OSError, AttributeError, ValueError):
            sys.stdout.flush()
        say(f"stopped; to resume: {self._wanted.again}")
        os._exit(128 + number)


def _waits_for_person(store: Store, row: RunRow) -> bool:
    """Return whether a parked run, or each child that it waits for, waits for a person."""
    if row.state is State.ESCALATED:
        return True
    if row.state is not State.CHECKPOINTED:
        return False
    if any(row.due_ms in (None, item.deadline_ms) for item in store.list_inbox(run=row.id)):
        return True
    children = _children(store, row.id) if row.due_ms is None else []
    return bool(children) and all(_waits_for_person(store, child) for child in children)


def _children(store: Store, run: str) -> list[RunRow]:
    """Return the run's children that have not ended."""
    return store.list_runs(RunQuery(parent=run, states=_UNFINISHED, limit=_MOST_CHILDREN))


def _say_children(store: Store, run: str, url: str) -> None:
    """Print what the descendants of a run ask, and how to answer."""
    for child in _children(store, run):
        for item in store.list_inbox(run=child.id):
            one = entry(item)
            what = f"{one.what} (asked by run {one.run!r})"
            say_item(one.kind, one.id, what, ways(one.takes, one.id, one.to), url)
        _say_children(store, child.id, url)


def _end_broken(error: BaseException) -> None:
    """Exit at once: it is unknown whether the last write is durable, and nothing may rely on it."""
    os.write(2, f"ninelives: {type(error).__name__}: {shown(str(error))}\n".encode(errors="replace"))
    os._exit(EXIT_STORE)


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{record.levelname.lower()}: {shown(record.getMessage())}"
        return f"ninelives: {line}" if hasattr(record, "event") else line


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a line says something that the command does not print by itself."""
    return getattr(record, "event", "") in ("", "retried")


def _show_log_lines() -> None:
    """Print what `nl.log` logs, and retries, to stderr, unless the agent's module has set up logging."""
    logger = logging.getLogger("ninelives")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(_Lines())
        handler.addFilter(_is_news)
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


def _report(found: Position, replayed: int | None, wanted: RunCommand, *, as_json: bool) -> int:
    """Print the outcome and return the exit code."""
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
        emit_json(outcome)
    if found.status is State.COMPLETED:
        if not as_json and found.result is not None:
            emit_json(found.result)
        elif found.result is None:
            say(f"run {found.id!r} completed, and its journal has been pruned: the result is gone")
        return 0
    show = command(["show", found.id], wanted.url)
    if found.status in (State.FAILED, State.CANCELLED):
        say(f"run {found.id!r} {found.status}" + _why(found))
        say(f"inspect it with: {show}")
        if found.status is State.FAILED:
            say(f"once the cause is fixed: {command(['retry', found.id], wanted.url)}")
        return EXIT_FAILED
    say_waiting(found, wanted.url)
    say(f"inspect it with: {show}")
    say(f"then resume it with: {wanted.again}")
    return EXIT_PERSON


def _why(found: Position) -> str:
    failed = found.last_error
    if failed is None or found.status is State.CANCELLED:
        return ""
    return f": {failed}" + (f" (in step {failed.step})" if failed.step else "")
