"""A rehearsal: runs in flight replayed against new code, up to where each would do something new.

Nothing is executed that a run has not done yet, and nothing is written: everything fresh, whatever its kind,
asks for the barrier first, and here the barrier is the end. Code outside of steps runs, as on every replay;
sockets and processes are refused to it. Records are found by the same code as in a worker. This is the child
process of `ninelives check`: it may hang or crash with the code that it tries, and its parent goes on with
the next run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Iterator, Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import Divergence, NineLivesError, UsageError
from ninelives.core.journal.matching import Start
from ninelives.core.journal.replay import Recorded, step_name, write_superseded
from ninelives.core.model.commit import Verdict
from ninelives.core.model.run import Journal, Kind, Record, RunQuery, RunRow, State
from ninelives.core.step_ids import step_text
from ninelives.engine.agent import compensations
from ninelives.engine.commit.committer import Committer
from ninelives.engine.commit.loop_commits import LoopCommits
from ninelives.engine.commit.ticket import NOTHING, Draft, Extras
from ninelives.engine.run import identity, large_bodies
from ninelives.engine.run.eviction import clear
from ninelives.engine.run.execution import Execution
from ninelives.engine.spec.registry import AGENTS, code_version
from ninelives.engine.worker import event_loop, run_retry
from ninelives.engine.worker.executor import Executor
from ninelives.runtime import agent_loader
from ninelives.store import Store
from ninelives.stores.clock import SystemClock
from ninelives.stores.open import open_store

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
_ENDED = "done, and the code comes to its end without asking for it"
_UNREACHED = (
    "done, and not asked for before the next new step; if the code does not ask for it before its next new "
    "effect, the run is stopped there"
)


class Fit(StrEnum):
    """How a run and the new code go together."""

    FITS = "fits"
    FAILS_AS_BEFORE = "fails as before"  # with the code that it ran with last, which is this one
    DIVERGES = "diverges"
    FAILS = "fails"
    HANGS = "hangs"


class Warned(Struct, frozen=True):
    """What somebody should know of a run that goes on, and what to write if it was not meant."""

    what: str
    remedy: str = ""


class CheckFinding(Struct, frozen=True, kw_only=True):
    """What became of one run in rehearsal, up to the first new thing that it would do.

    `unused` counts recorded steps that were not asked for. `moved` are steps that were found elsewhere than
    they were recorded, which is fine. `asked_again` are decisions and reads that the code asks for with other
    arguments, `left_out` those that it did not ask for. `unreached` are effects on record that it did not ask
    for either: it does them no second time, but if it does not ask for them before its next new effect, it is
    stopped there; that cannot be told without asking what is new. `in_doubt` are starts without an outcome
    that it did not ask for: a person is asked before the run ends. `warnings` say these for people, each with
    what to write; `remedy` has all of that.
    """

    run: str
    agent: str
    fit: Fit
    replayed: int = 0
    unused: int = 0
    moved: tuple[str, ...] = ()
    asked_again: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    in_doubt: tuple[str, ...] = ()
    warnings: tuple[Warned, ...] = ()
    is_escalated: bool = False
    step: str | None = None
    what: str = ""
    remedy: str | None = None

    @property
    def has_warnings(self) -> bool:
        """Tell whether somebody should know of something, although the run goes on."""
        return bool(self.warnings) or self.fit is Fit.FAILS_AS_BEFORE


class CheckBegun(Struct, frozen=True, tag="begun"):
    """Said before a run is tried: if nothing follows, it is the one that hangs."""

    run: str
    agent: str


class CheckFound(Struct, frozen=True, tag="found"):
    """Said after a run was tried."""

    finding: CheckFinding


class Foreign(Struct, frozen=True, tag="foreign"):
    """Said of a run whose agent the code does not declare."""

    run: str
    agent: str


class CheckDone(Struct, frozen=True, tag="done"):
    """Said after all runs: without it, the code has ended the process, whatever its exit code says."""


Line = CheckBegun | CheckFound | Foreign | CheckDone


class CheckOrder(Struct, frozen=True, kw_only=True):
    """What to rehearse: all runs in flight, but for some."""

    target: str
    url: str
    limit_seconds: float
    skip: tuple[str, ...] = ()


class _Frontier(NineLivesError):
    """The run has come to something that it has not done yet."""


class _Rehearsed(Execution):
    """An execution that ends where anything new begins, once all else in it has come as far as it can."""

    _has_reached = False

    async def barrier(self, *, is_read: bool = False) -> None:  # noqa: ARG002
        if not self._has_reached:
            self._has_reached = True
            self.delivery.at_rest += (self._reach,)
        self.delivery.look()
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

    async def rehearse(self, run: RunRow) -> CheckFinding:
        """Replay one run as far as it has come, and say whether the code fits it."""
        agent = AGENTS[run.agent]
        try:
            journal = large_bodies.load(self._store, run.id)
        except NineLivesError as error:
            return _finding(run, Fit.FAILS, error)
        journal, pending = self._as_owned(journal)
        execution = _Rehearsed(journal, *self._parts(agent))
        execution.is_pipelined = False  # then nothing is told before it has passed the barrier
        execution.is_undoing = pending is not None
        self.executions[run.id] = execution
        try:
            async with asyncio.timeout(self._limit_seconds):
                if pending is None:
                    ended = await self._drive(execution, agent, journal)
                else:
                    ended = await self._perform(execution, compensations.call_all(execution, pending))
        except TimeoutError:
            execution.seal(_Frontier("too late"))
            await clear(execution)
            return hangs(run.id, run.agent, self._limit_seconds)
        finally:
            del self.executions[run.id]
        finding = _judged(run, execution, ended)
        await clear(execution)
        if finding.fit is Fit.FAILS and self._is_code_of(run):
            return replace(
                finding, fit=Fit.FAILS_AS_BEFORE, remedy="It ends as failed with the code as it is"
            )
        return finding

    def _as_owned(self, journal: Journal) -> tuple[Journal, list[compensations.Undo] | None]:
        """Return the journal as its next owner goes on from it; if only undoing is left, what to undo."""
        if run_retry.is_retried(journal):
            steps = run_retry.superseded(self._store, journal)
            anew = Record(journal.run.length, Kind.SUPERSEDED, "", 0, write_superseded(steps))
            journal = replace(journal, records=(*journal.records, anew))
        if not any(record.kind is Kind.UNDOING for record in journal.records):
            return journal, None
        stretch, _, pending = compensations.last_stretch(journal)
        return stretch, pending

    def _is_code_of(self, run: RunRow) -> bool:
        """Tell whether the worker that has the run, or died with it, had this code."""
        name = run.session or run.left_by
        session = self._store.read_session(name) if name else None
        if session is None or not session.code or not set(session.agents) <= AGENTS.keys():
            return False
        return code_version(session.agents) == session.code


def _judged(run: RunRow, execution: Execution, ended: asyncio.Task[Any] | None) -> CheckFinding:
    if ended is None:
        why = execution.sealed
        if why is None or isinstance(why, _Frontier):
            return _fitting(run, execution, has_ended=False)
        return _finding(run, Fit.DIVERGES if isinstance(why, Divergence) else Fit.FAILS, why)
    error = asyncio.CancelledError() if ended.cancelled() else ended.exception()
    return _fitting(run, execution, has_ended=True) if error is None else _finding(run, Fit.FAILS, error)


def _fitting(run: RunRow, execution: Execution, *, has_ended: bool) -> CheckFinding:
    claims, forgets = identity.claims_of(execution), identity.forgotten(execution)
    left = sorted(claims.unclaimed(), key=lambda one: one.seq)
    done = [one.step for one in left if isinstance(one, Recorded) and identity.is_effect(one)]
    reads = [one.step for one in left if isinstance(one, Recorded) and not identity.is_effect(one)]
    starts = [one.step for one in left if isinstance(one, Start) and one.is_open and identity.is_effect(one)]
    effects = [step for step in done if step_name(step) not in forgets]
    left_out = [step for step in reads if step not in set(execution.asked_again)]
    warnings = (
        *_warned("asked again, with other arguments", execution.asked_again),
        *_warned("recorded and asked for no more", left_out, _if_renamed(left_out)),
        *_warned(_ENDED if has_ended else _UNREACHED, effects, _if_renamed(effects), _if_given_up(effects)),
        *_warned("started, in doubt, and not asked for; a person is asked before the run ends", starts),
    )
    return CheckFinding(
        run=run.id,
        agent=run.agent,
        fit=Fit.FITS,
        replayed=execution.replayed,
        unused=execution.replay.left,
        moved=tuple(f"{step_text(found)} → {step_text(asked)}" for found, asked in execution.moved),
        asked_again=tuple(map(step_text, execution.asked_again)),
        left_out=tuple(map(step_text, left_out)),
        unreached=tuple(map(step_text, effects)),
        in_doubt=tuple(map(step_text, starts)),
        warnings=warnings,
        is_escalated=run.state is State.ESCALATED,
        remedy="; ".join(one.remedy for one in warnings if one.remedy) or None,
    )


def _warned(what: str, steps: Sequence[str], *remedies: str) -> Iterator[Warned]:
    if steps:
        said = f"{what}: {', '.join(map(step_text, steps))}"
        yield Warned(said, "; ".join(filter(None, remedies)))


def _if_renamed(steps: Sequence[str]) -> str:
    """Say what to write if steps that are on record, and that the code declares no more, were renamed."""
    names = sorted({name for step in steps if identity.is_unknown(name := step_name(step))})
    return "; ".join(f'If {name} was renamed, declare the step with aliases=["{name}"]' for name in names)


def _if_given_up(steps: Sequence[str]) -> str:
    """Say what to write if effects that are on record are given up on purpose."""
    names = sorted({step_name(step) for step in steps})
    return f"If it is given up on purpose: @nl.agent(forgets={json.dumps(names)})"


def _finding(run: RunRow, fit: Fit, why: BaseException) -> CheckFinding:
    if isinstance(why, NineLivesError):
        step = why.step and step_text(why.step)
        return CheckFinding(run=run.id, agent=run.agent, fit=fit, step=step, what=why.what, remedy=why.remedy)
    is_refused = isinstance(why, _Refused)
    return CheckFinding(
        run=run.id,
        agent=run.agent,
        fit=fit,
        what=(str(why) if is_refused else f"the code raises {type(why).__name__}: {why}")[:500],
        remedy="Move it into a step: outside of one it happens again on every replay, and cannot be checked"
        if is_refused
        else "Mend the code: with it, the run would end as failed",
    )


def hangs(run: str, agent: str, seconds: float) -> CheckFinding:
    """Return the finding for a run that gets nowhere."""
    return CheckFinding(
        run=run,
        agent=agent,
        fit=Fit.HANGS,
        what=f"the code did not come to its next step within {seconds:g} s",
        remedy="Code outside of steps must not wait or compute for long; --limit gives it more time",
    )


def in_flight(store: Store) -> Iterator[RunRow]:
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


async def _rehearse_all(order: CheckOrder, store: Store, results: int) -> None:
    def say(line: Line) -> None:
        os.write(results, msgspec.json.encode(line) + b"\n")

    loop = asyncio.get_running_loop()
    event_loop.enter(loop)
    rehearsal = Rehearsal(store, loop, order.limit_seconds)
    for run in in_flight(store):
        if run.id in order.skip:
            continue
        if run.agent not in AGENTS:
            say(Foreign(run.id, run.agent))
            continue
        say(CheckBegun(run.id, run.agent))
        say(CheckFound(await rehearsal.rehearse(run)))
    say(CheckDone())


def main() -> None:
    """Rehearse, as the order on standard input says. Never returns."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=CheckOrder)
    results, exit_code = os.dup(1), 0
    os.dup2(2, 1)  # what the code prints is not a finding
    try:
        logging.getLogger("ninelives").disabled = True  # what it says of a run is in the finding
        store = open_store(order.url)
        sys.addaudithook(_refuse)
        agent_loader.load(order.target)
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
