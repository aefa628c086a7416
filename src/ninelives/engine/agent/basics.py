"""Small functions for code inside a run: key, info, time, randomness, log, branches, fan-out."""

from __future__ import annotations

import asyncio
import logging
import uuid as uuids
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ninelives.core.clock import moment
from ninelives.core.errors import NoRun, UsageError
from ninelives.core.governance.costs import charges
from ninelives.core.ids import check_id, step_id
from ninelives.core.journal.replay import write_body
from ninelives.core.model.run import Kind
from ninelives.core.model.totals import BUILTIN
from ninelives.core.secret import masked
from ninelives.engine.context import BRANCH, EXECUTION, FRAME
from ninelives.engine.run import identity
from ninelives.engine.run.current import execution_of, require, require_agent
from ninelives.engine.run.execution import Execution

T = TypeVar("T")
U = TypeVar("U")
LOGGER = logging.getLogger("ninelives.run")


class NextTurn:
    """The value an agent returns to start its next turn, with an empty journal."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs


class Info(Struct, frozen=True):
    """The position of the calling code, as `nl.info()` returns it.

    `attempt` is that of the current step; it is 0 outside a step.
    """

    run: str
    agent: str
    turn: int
    attempt: int
    is_replaying: bool


def key() -> str:
    """Return the current action's idempotency key: the same on every attempt, also after a crash.

    Pass it to the service that you call. Raises NoRun outside the body of a step.
    """
    frame = FRAME.get()
    if frame is None:
        raise NoRun(
            "nl.key() is for use inside a step", remedy="Call it in the body of an action and pass it on"
        )
    execution = execution_of(frame.position)
    if execution.hooks is not None:
        execution.hooks.key_read(frame)
    return frame.position.key()


def charge(
    *,
    usd: float | Decimal | None = None,
    tokens: int = 0,
    tokens_in: int = 0,
    tokens_out: int = 0,
    model: str | None = None,
) -> None:
    """Charge what the body of a step has spent to the budgets that count it. Calls add up.

    Instead of `usd`, name the `model`: its tokens are priced by the price list. What is charged replaces what
    the step's result reports. Where no run is executed it does nothing. Raises UsageError for an amount that
    is none, and outside the body of a step.
    """
    found = charges(usd=usd, tokens=tokens, tokens_in=tokens_in, tokens_out=tokens_out, model=model)
    frame = FRAME.get()
    if frame is None:
        if EXECUTION.get() is None:
            return
        raise UsageError("nl.charge() is for use inside a step", remedy="Call it in the body that spends")
    if frame.is_over:
        raise UsageError(
            "nl.charge() was called after the end of the step's body, which has been settled",
            run=frame.position.execution.run.id,
            step=frame.position.id,
            remedy="Await all that the body starts before it returns",
        )
    for meter, amount in found.items():
        frame.charge(meter, amount)


def info() -> Info:
    """Return the current run, agent, turn, attempt of the step, and whether the run is replaying."""
    execution, frame = require("nl.info()"), FRAME.get()
    return Info(
        run=execution.run.id,
        agent=execution.run.agent,
        turn=execution.turn,
        attempt=frame.attempt if frame else 0,
        is_replaying=execution.is_replaying,
    )


def now() -> datetime:
    """Return the current time in UTC. The time is recorded: replay returns the same one.

    Inside a step it returns the clock's time, unrecorded: the step's result is what is recorded.
    """
    execution = require("nl.now()")
    if FRAME.get() is not None:
        return moment(execution.clock.now_ms())
    position = execution.next_position("now")
    found = execution.replay.take(position.id)
    if found is not None and isinstance(found.body.v, msgspec.Raw):
        return moment(int(bytes(found.body.v)))
    now_ms = execution.clock.now_ms()
    execution.note(Kind.RESULT, position.id, write_body(None, value=str(now_ms).encode()), BUILTIN)
    return moment(now_ms)


def uuid() -> uuids.UUID:
    """Return a version 4 UUID, derived from the call's position in the run: the same on replay."""
    execution = require("nl.uuid()")
    return uuids.UUID(bytes=execution.derived(execution.next_position("uuid")).randbytes(16), version=4)


def random() -> float:
    """Return a number in [0, 1), derived from the call's position in the run: the same on replay."""
    execution = require("nl.random()")
    return execution.derived(execution.next_position("random")).random()


class Log:
    """Log lines for people: recorded with the run, and passed to `logging` when they are durable.

    A recorded line is passed on at most once, never on replay. Inside a step a line is not recorded; it is
    passed to `logging` at once, on every attempt.
    """

    def debug(self, line: str) -> None:
        """Log a line at level DEBUG."""
        _log(logging.DEBUG, line)

    def info(self, line: str) -> None:
        """Log a line at level INFO."""
        _log(logging.INFO, line)

    def warning(self, line: str) -> None:
        """Log a line at level WARNING."""
        _log(logging.WARNING, line)

    def error(self, line: str) -> None:
        """Log a line at level ERROR."""
        _log(logging.ERROR, line)


log = Log()


def _log(level: int, line: str) -> None:
    execution, line = require("nl.log"), masked(line)
    body = msgspec.json.encode({"level": logging.getLevelName(level), "line": line})
    if FRAME.get() is not None:
        # A body is never replayed, so there is nothing to suppress: log once per attempt.
        LOGGER.log(level, line, extra={"run": execution.run.id})
        return
    position = execution.next_position("log")
    if not execution.replay.knows_line(position.id):
        execution.on_loop(lambda: _write_line(execution, level, line, position.id, body))


def _write_line(execution: Execution, level: int, line: str, step: str, body: bytes) -> None:
    if execution.sealed is None:
        written = execution.write([(Kind.LOG, step, body)])
        # CRASH: durable, and not passed to logging: at most once there, and always in the journal.
        written.add_done_callback(lambda done: _hand_on(execution, done, level, line))


def _hand_on(execution: Execution, done: asyncio.Future[Any], level: int, line: str) -> None:
    if not done.cancelled() and done.exception() is None and execution.sealed is None:
        LOGGER.log(level, line, extra={"run": execution.run.id})


def progress(step: int, of: int | None = None, note: str = "") -> None:
    """Record how far the run is (`step` of `of`, with a note), for people to see.

    Raises UsageError inside a step.
    """
    execution = require_agent("nl.progress()")
    position = execution.next_position("progress")
    if not execution.replay.knows_line(position.id):
        execution.note(
            Kind.PROGRESS, position.id, msgspec.json.encode({"step": step, "of": of, "note": masked(note)})
        )


@contextmanager
def branch(name: str) -> Iterator[None]:
    """Name the branch of the steps and tasks inside the block, to make the history readable.

    Entering again under the same name makes another branch: `x`, then `x.1`.
    """
    require("nl.branch()")
    token = BRANCH.set(BRANCH.get().child(f"={check_id(name, 'branch name')}"))
    try:
        yield
    finally:
        BRANCH.reset(token)


def patched(name: str) -> bool:
    """Return whether this run should take newly added code: True if it has not passed this point yet.

    Returns False if the run already recorded something after this point and is catching up with it. The
    answer is recorded, is the same on every replay, and holds for all calls with this name until the next
    turn. Raises UsageError inside a step.
    """
    execution = require_agent("nl.patched()")
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
            # CRASH: not recorded, and nothing that depends on it either: the next worker decides again.
            execution.note(Kind.RESULT, step, body, BUILTIN)
        execution.patches[name] = known
    return known


async def gather(*awaitables: Awaitable[T]) -> list[T]:
    """Await several awaitables concurrently, each on its own branch; return their results in order.

    The first failure cancels the others, waits until they have ended, and is raised.
    """
    tasks = [asyncio.ensure_future(one) for one in awaitables]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        # The caller goes on only when all have ended: else they would act beside code that gave them up.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def map(step: Callable[[T], Awaitable[U]], items: Iterable[T], *, limit: int = 10) -> list[U]:  # noqa: A001
    """Call a step for each item, at most `limit` at once; return the results in the order of the items.

    The first failure cancels the other calls and is raised. Raises UsageError for a limit below 1.
    """
    if limit < 1:
        raise UsageError(f"limit={limit!r}", remedy="Give 1 or more")
    semaphore = asyncio.Semaphore(limit)

    async def one(item: T) -> U:
        async with semaphore:
            return await step(item)

    return await gather(*(one(item) for item in items))


def next_turn(*args: Any, **kwargs: Any) -> Any:
    """End this turn: `return nl.next_turn(...)` calls the agent again, with these arguments.

    The next turn starts with an empty journal, so long runs replay only their last turn.
    Raises UsageError while other branches are open: the next turn could not continue them.
    """
    execution = require("nl.next_turn()")
    # Cancelled branches do not count: the executor waits for them before the turn ends.
    if sum(not task.cancelling() for task in execution.open_branches()) > 1:
        raise UsageError(
            "nl.next_turn() while other branches of the run are open",
            run=execution.run.id,
            remedy="Await or cancel them first",
        )
    return NextTurn(args, kwargs)
