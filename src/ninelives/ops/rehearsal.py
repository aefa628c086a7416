"""A rehearsal: runs in flight replayed against new code, up to where each would do something new.

Nothing is executed that a run has not done yet, and nothing is written: everything fresh, whatever its kind,
asks for the barrier first, and here the barrier is the end. Code outside of steps runs, as on every replay;
sockets and processes are refused to it. This is the child process of `ninelives check`: it may hang or crash
with the code that it tries, and its parent goes on with the next run.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Iterator, Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from ninelives.backends.clock import SystemClock
from ninelives.backends.open import open_store
from ninelives.core.commits import Verdict
from ninelives.core.errors import Divergence, NineLivesError, UsageError
from ninelives.core.model import Run, RunQuery, State
from ninelives.engine import bodies, host
from ninelives.engine.committer import Committer
from ninelives.engine.eviction import clear
from ninelives.engine.execution import Execution
from ninelives.engine.executor import Executor
from ninelives.engine.loop import LoopCommits
from ninelives.engine.registry import AGENTS
from ninelives.engine.ticket import NOTHING, Draft, Extras
from ninelives.runtime import code
from ninelives.store import Store

EXIT_USAGE, EXIT_STORE = 2, 4
IN_FLIGHT = (State.PENDING, State.RUNNING, State.CHECKPOINTED, State.ESCALATED)
REFUSED = frozenset(
    {
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "socket.sendmsg",
        "socket.sendto",
        "subprocess.Popen",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
    }
)
_PAGE = 200


class Fit(StrEnum):
    """How a run and the new code go together."""

    FITS = "fits"
    DIVERGES = "diverges"
    FAILS = "fails"
    HANGS = "hangs"


class Finding(Struct, frozen=True, kw_only=True):
    """What became of one run in rehearsal. `unused` counts recorded steps that nobody asked for any more."""

    run: str
    agent: str
    fit: Fit
    replayed: int = 0
    unused: int = 0
    step: str | None = None
    what: str = ""
    remedy: str | None = None


class Begun(Struct, frozen=True, tag="begun"):
    """Said before a run is tried: if nothing follows, it is the one that hangs."""

    run: str
    agent: str


class Found(Struct, frozen=True, tag="found"):
    """Said after a run was tried."""

    finding: Finding


class Foreign(Struct, frozen=True, tag="foreign"):
    """Said of a run whose agent the code does not declare."""

    run: str
    agent: str


Line = Begun | Found | Foreign


class Order(Struct, frozen=True, kw_only=True):
    """What to rehearse: all runs in flight, but for some."""

    target: str
    url: str
    limit_seconds: float
    skip: tuple[str, ...] = ()


class _Frontier(NineLivesError):
    """The run has come to something that it has not done yet."""


class _Rehearsed(Execution):
    """An execution that ends where anything new begins."""

    async def barrier(self) -> None:
        self._reach()
        await self.forever()

    def write(self, drafts: Sequence[Draft], extras: Extras = NOTHING) -> asyncio.Future[Verdict]:  # noqa: ARG002
        return self.loop.create_future()

    def append(self, draft: Draft, *, is_alone: bool) -> Awaitable[Verdict] | None:  # noqa: ARG002
        return self.loop.create_future()

    def _reach(self) -> None:
        self.seal(_Frontier("the run would do something new here", run=self.run.id))


class Rehearsal(Executor):
    """Replays runs, and only that."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, limit_seconds: float) -> None:
        clock = SystemClock()
        super().__init__(store, LoopCommits(Committer(store, clock), loop), loop, clock)
        self._limit_seconds = limit_seconds

    async def rehearse(self, run: Run) -> Finding:
        """Replay one run as far as it has come, and say whether the code fits it."""
        agent = AGENTS[run.agent]
        try:
            journal = bodies.load(self._store, run.id)
        except NineLivesError as error:
            return _finding(run, Fit.FAILS, error)
        execution = _Rehearsed(journal, *self._parts(agent))
        execution.is_pipelined = False  # then nothing is told before it has passed the barrier
        self.executions[run.id] = execution
        try:
            async with asyncio.timeout(self._limit_seconds):
                ended = await self._drive(execution, agent, journal)
        except TimeoutError:
            execution.seal(_Frontier("too late"))
            await clear(execution)
            return hangs(run.id, run.agent, self._limit_seconds)
        finally:
            del self.executions[run.id]
        await clear(execution)
        return _judged(run, execution, ended)


def _judged(run: Run, execution: Execution, ended: asyncio.Task[Any] | None) -> Finding:
    replay = execution.replay
    if ended is None:
        why = execution.sealed
        if why is None or isinstance(why, _Frontier):
            return Finding(
                run=run.id, agent=run.agent, fit=Fit.FITS, replayed=execution.replayed, unused=replay.left
            )
        return _finding(run, Fit.DIVERGES if isinstance(why, Divergence) else Fit.FAILS, why)
    error = asyncio.CancelledError() if ended.cancelled() else ended.exception()
    if error is not None:
        return _finding(run, Fit.FAILS, error)
    return Finding(run=run.id, agent=run.agent, fit=Fit.FITS, replayed=execution.replayed, unused=replay.left)


def _finding(run: Run, fit: Fit, why: BaseException) -> Finding:
    if isinstance(why, NineLivesError):
        return Finding(run=run.id, agent=run.agent, fit=fit, step=why.step, what=why.what, remedy=why.remedy)
    is_refused = isinstance(why, _Refused)
    return Finding(
        run=run.id,
        agent=run.agent,
        fit=fit,
        what=(str(why) if is_refused else f"the code raises {type(why).__name__}: {why}")[:500],
        remedy="Move it into a step: outside of one it happens again on every replay, and cannot be checked"
        if is_refused
        else "Mend the code: with it, the run would end as failed",
    )


def hangs(run: str, agent: str, seconds: float) -> Finding:
    """Return the finding for a run that gets nowhere."""
    return Finding(
        run=run,
        agent=agent,
        fit=Fit.HANGS,
        what=f"the code did not come to its next step within {seconds:g} s",
        remedy="Code outside of steps must not wait or compute for long; --limit gives it more time",
    )


def in_flight(store: Store) -> Iterator[Run]:
    """Yield the runs that are in flight, newest first."""
    after: int | None = None
    while True:
        page = store.list_runs(RunQuery(states=IN_FLIGHT, limit=_PAGE, after=after))
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].number


class _Refused(PermissionError):
    """The code wanted to reach out of the process while it was only being checked."""


def _refuse(event: str, _: tuple[Any, ...]) -> None:
    if event in REFUSED:
        raise _Refused(f"{event} is refused while code is only being checked")


async def _rehearse_all(order: Order, store: Store, results: int) -> None:
    def say(line: Line) -> None:
        os.write(results, msgspec.json.encode(line) + b"\n")

    loop = asyncio.get_running_loop()
    host.enter(loop)
    rehearsal = Rehearsal(store, loop, order.limit_seconds)
    for run in in_flight(store):
        if run.id in order.skip:
            continue
        if run.agent not in AGENTS:
            say(Foreign(run.id, run.agent))
            continue
        say(Begun(run.id, run.agent))
        say(Found(await rehearsal.rehearse(run)))


def main() -> None:
    """Rehearse, as the order on standard input says. Never returns."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    results, exit_code = os.dup(1), 0
    os.dup2(2, 1)  # what the code prints is not a finding
    try:
        store = open_store(order.url)
        sys.addaudithook(_refuse)
        code.load(order.target)
        asyncio.run(_rehearse_all(order, store, results))
    except UsageError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        exit_code = EXIT_USAGE
    except NineLivesError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        exit_code = EXIT_STORE
    sys.stderr.flush()
    os._exit(exit_code)


if __name__ == "__main__":
    main()
