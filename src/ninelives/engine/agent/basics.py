"""What code inside a run can ask for: its key, the time, randomness, lines for people, timeouts, fan-out."""

from __future__ import annotations

import asyncio
import logging
import uuid as uuids
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ninelives.core.errors import NoRun, UsageError
from ninelives.core.ids import check_id, step_id
from ninelives.core.journal.replay import write_body
from ninelives.core.model.run import Kind
from ninelives.core.model.totals import BUILTIN
from ninelives.engine.context import BRANCH, FRAME
from ninelives.engine.run import identity
from ninelives.engine.run.current import require
from ninelives.engine.run.execution import Execution

T = TypeVar("T")
U = TypeVar("U")
LOGGER = logging.getLogger("ninelives.run")


class NextTurn:
    """What an agent returns to go on with an empty journal."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs


class Info(Struct, frozen=True):
    """Where the code is."""

    run: str
    agent: str
    turn: int
    attempt: int
    is_replaying: bool


def key() -> str:
    """Return the current action's idempotency key: the same on every attempt, in every life."""
    frame = FRAME.get()
    if frame is None:
        raise NoRun(
            "nl.key() is for use inside a step", remedy="Call it in the body of an action and pass it on"
        )
    return frame.place.key()


def info() -> Info:
    """Say where the code is: run, agent, turn, attempt of the step, whether it is replaying."""
    execution, frame = require("nl.info()"), FRAME.get()
    return Info(
        run=execution.run.id,
        agent=execution.run.agent,
        turn=execution.turn,
        attempt=frame.attempt if frame else 0,
        is_replaying=execution.is_replaying,
    )


def now() -> datetime:
    """Return the time, in UTC; on replay, the time that it was."""
    execution = require("nl.now()")
    if FRAME.get() is not None:
        return _moment(execution.clock.now_ms())
    place = execution.place("now")
    found = execution.replay.take(place.id)
    if found is not None and isinstance(found.body.v, msgspec.Raw):
        return _moment(int(bytes(found.body.v)))
    now_ms = execution.clock.now_ms()
    execution.note(Kind.RESULT, place.id, write_body(None, value=str(now_ms).encode()), BUILTIN)
    return _moment(now_ms)


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def uuid() -> uuids.UUID:
    """Return a UUID, the same on replay."""
    execution = require("nl.uuid()")
    return uuids.UUID(bytes=execution.derived(execution.place("uuid")).randbytes(16), version=4)


def random() -> float:
    """Return a number from 0 up to 1, the same on replay."""
    execution = require("nl.random()")
    return execution.derived(execution.place("random")).random()


class Log:
    """Lines for people: recorded with the run, and handed to logging once, after they are durable."""

    def debug(self, line: str) -> None:
        """Log for who looks closely."""
        _log(logging.DEBUG, line)

    def info(self, line: str) -> None:
        """Log."""
        _log(logging.INFO, line)

    def warning(self, line: str) -> None:
        """Log what somebody should know."""
        _log(logging.WARNING, line)

    def error(self, line: str) -> None:
        """Log what went wrong."""
        _log(logging.ERROR, line)


log = Log()


def _log(level: int, line: str) -> None:
    execution = require("nl.log")
    body = msgspec.json.encode({"level": logging.getLevelName(level), "line": line})
    if FRAME.get() is not None:
        # Inside a body there is no replay to be silent in; it is logged once per attempt.
        LOGGER.log(level, line, extra={"run": execution.run.id})
        return
    place = execution.place("log")
    if not execution.replay.knows_line(place.id):
        execution.on_loop(lambda: _write_line(execution, level, line, place.id, body))


def _write_line(execution: Execution, level: int, line: str, step: str, body: bytes) -> None:
    if execution.sealed is None:
        written = execution.write([(Kind.LOG, step, body)])
        # CRASH: durable and not handed on: at most once, and always in the journal.
        written.add_done_callback(lambda done: _hand_on(execution, done, level, line))


def _hand_on(execution: Execution, done: asyncio.Future[Any], level: int, line: str) -> None:
    if not done.cancelled() and done.exception() is None and execution.sealed is None:
        LOGGER.log(level, line, extra={"run": execution.run.id})


def progress(step: int, of: int | None = None, note: str = "") -> None:
    """Say how far the run is, for who looks at it."""
    execution = require("nl.progress()")
    if FRAME.get() is not None:
        raise UsageError("nl.progress() is for the agent, not for a step", run=execution.run.id)
    place = execution.place("progress")
    if not execution.replay.knows_line(place.id):
        execution.note(Kind.PROGRESS, place.id, msgspec.json.encode({"step": step, "of": of, "note": note}))


@contextmanager
def branch(name: str) -> Iterator[None]:
    """Name the branch of the steps and tasks inside, for who reads the history.

    Entered again under the same name, it is another branch: `x`, then `x.1`.
    """
    require("nl.branch()")
    token = BRANCH.set(BRANCH.get().child(f"={check_id(name, 'branch name')}"))
    try:
        yield
    finally:
        BRANCH.reset(token)


def patched(name: str) -> bool:
    """Tell whether code that was added here is for this run: True where it has not passed this point yet.

    False while the run catches up with what it had recorded after this point. The answer is recorded, is the
    same on every replay, and holds for all calls with this name until the next turn.
    """
    execution = require("nl.patched()")
    if FRAME.get() is not None:
        raise UsageError("nl.patched() is for the agent, not for a step", run=execution.run.id)
    name = check_id(name, "patch name")
    known = execution.patches.get(name)
    if known is None:
        step = step_id("", f"patched:{name}", 0)
        found = execution.replay.take(step)
        if found is not None:
            known = bytes(found.body.v or b"") == b"true"
        else:
            known = not identity.has_gone_on(execution)
            body = write_body(None, value=b"true" if known else b"false")
            # CRASH: not recorded, and nothing that rests on it either: it is judged again.
            execution.note(Kind.RESULT, step, body, BUILTIN)
        execution.patches[name] = known
    return known


async def gather(*awaitables: Awaitable[T]) -> list[T]:
    """Await several at once, each on its own branch; the first failure cancels the others and is raised."""
    tasks = [asyncio.ensure_future(one) for one in awaitables]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def map(step: Callable[[T], Awaitable[U]], items: Iterable[T], *, limit: int = 10) -> list[U]:  # noqa: A001
    """Call a step for each item, at most `limit` at once; results in the order of the items."""
    if limit < 1:
        raise UsageError(f"limit={limit!r}", remedy="Give 1 or more")
    places = asyncio.Semaphore(limit)

    async def one(item: T) -> U:
        async with places:
            return await step(item)

    return await gather(*(one(item) for item in items))


def next_turn(*args: Any, **kwargs: Any) -> Any:
    """Return this from an agent to go on with these arguments and an empty journal.

    Raises UsageError while branches are open: they could not be taken along.
    """
    execution = require("nl.next_turn()")
    # What was cancelled is on its way out; the executor waits for it before the turn ends.
    if sum(not task.cancelling() for task in execution.open_branches()) > 1:
        raise UsageError(
            "nl.next_turn() while other branches of the run are open",
            run=execution.run.id,
            remedy="Await or cancel them first",
        )
    return NextTurn(args, kwargs)
