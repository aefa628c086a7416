"""Rehearse runs in flight: replay each against new code, up to the first new step. For `ninelives check`.

No new step is executed and nothing is written: every new step passes the barrier first, and here a gate at
the barrier ends the rehearsal. Code outside steps runs, as on every replay; it cannot open sockets or start
processes. Records are matched by the same code as in a worker. This module is the child process of
`ninelives check`: it may hang or crash with the code that it tries, and its parent continues with the next
run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import Divergence, NineLivesError, UsageError
from ninelives.core.journal.matching import Start
from ninelives.core.journal.replay import Recorded, Undo, step_name, write_superseded
from ninelives.core.model.commit import Verdict
from ninelives.core.model.run import Journal, Kind, Record, RunQuery, RunRow, State
from ninelives.core.step_ids import step_text
from ninelives.engine.agent import compensations
from ninelives.engine.agent.basics import NextTurn
from ninelives.engine.commit import large_bodies
from ninelives.engine.commit.ticket import Tail
from ninelives.engine.run import lookup
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.intents import Intents
from ninelives.engine.run.tasks import clear, run_code
from ninelives.engine.spec.registry import AGENTS, code_version
from ninelives.engine.worker import event_loop, run_retry
from ninelives.engine.worker.executor import drive
from ninelives.ops import check_advice
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
_ENDED = "done, and the code ends without calling it"
_UNREACHED = (
    "done, and not called before the next new step; if the code does not call it before its next new "
    "effect or nl.next_turn(), the run is stopped there; if it ends before either, it is not"
)
_IF_IN_CHILD = (
    "If it moved into a child run, it is done again there, unless it was done under a key=: "
    "leave the call in this run until the run is over"
)


class Fit(StrEnum):
    """Whether the new code fits a run."""

    FITS = "fits"
    FAILS_AS_BEFORE = "fails as before"  # with the code that it ran with last, which is this one
    DIVERGES = "diverges"
    FAILS = "fails"
    HANGS = "hangs"


class Warned(Struct, frozen=True):
    """A warning about a run that continues, and what to write if the change was not intended."""

    what: str
    remedy: str = ""


class CheckFinding(Struct, frozen=True, kw_only=True):
    """The result of one run's rehearsal, up to its first new step.

    `unused` counts recorded steps that the code did not call. `moved` are steps that matched a record at
    another position, which is fine. `asked_again` are decisions and reads that the code calls with other
    arguments, `left_out` those that it did not call. `unreached` are recorded effects that it did not call
    either: they are not repeated, but if the code does not call them before its next new effect or the end of
    its turn, the run is stopped there; only executing new steps would show which. `in_doubt` are starts
    without an outcome that it did not call: a person is asked before the run ends. `warnings` are these for
    people, each with its remedy; `remedy` joins them all.
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
        """Whether there is something to report, although the run continues."""
        return bool(self.warnings) or self.fit is Fit.FAILS_AS_BEFORE


class CheckBegun(Struct, frozen=True, tag="begun"):
    """Sent before a run is tried: if no other message follows, this run hangs."""

    run: str
    agent: str


class CheckFound(Struct, frozen=True, tag="found"):
    """Sent after a run was tried."""

    finding: CheckFinding


class Foreign(Struct, frozen=True, tag="foreign"):
    """Sent for a run whose agent the code does not declare."""

    run: str
    agent: str


class CheckDone(Struct, frozen=True, tag="done"):
    """Sent after all runs: without it, the code has ended the process, whatever its exit code is."""


Line = CheckBegun | CheckFound | Foreign | CheckDone


class CheckOrder(Struct, frozen=True, kw_only=True):
    """What to rehearse: all runs in flight except `skip`."""

    target: str
    url: str
    limit_seconds: float
    skip: tuple[str, ...] = ()


class _Reached(NineLivesError):
    """The run has reached a new step."""


class _Frontier:
    """The gate of a rehearsal: it ends at the first new step, once all other branches have got there, too."""

    def __init__(self) -> None:
        self._is_reached = False

    async def __call__(self, execution: Execution) -> None:
        """Wait at a new step without end."""
        if not self._is_reached:
            self._is_reached = True
            # Not at the first new step: other branches may still have
            # recorded steps to call, and would be reported as left out.
            execution.delivery.at_rest += (lambda: self.end(execution),)
        execution.delivery.check_soon()
        await execution.forever()

    def end(self, execution: Execution) -> None:
        """End the rehearsal here."""
        execution.seal(_Reached("the run would do something new here", run=execution.run.id))


class _NoCommits:
    """Commits that never happen: nothing is written, and no write is answered."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def start(self, *_: Any) -> asyncio.Future[Verdict]:
        return self._loop.create_future()

    def append(self, *_: Any, is_single: bool) -> asyncio.Future[Verdict]:  # noqa: ARG002
        return self._loop.create_future()

    def commit_here(self, *_: Any) -> asyncio.Future[Verdict]:
        return self._loop.create_future()

    def all_answered(self, tail: Tail) -> None:
        """Nothing is under way."""


class Rehearsal:
    """Replays runs, and executes nothing."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, limit_seconds: float) -> None:
        self._store, self._loop, self._limit_seconds = store, loop, limit_seconds

    async def rehearse(self, run: RunRow) -> CheckFinding:
        """Replay one run up to its first new step, and return whether the code fits it."""
        agent = AGENTS[run.agent]
        try:
            journal = large_bodies.load(self._store, run.id)
        except NineLivesError as error:
            return _finding(run, Fit.FAILS, error)
        journal, pending = self._as_owned(journal)
        execution = Execution(
            journal,
            self._store,
            _NoCommits(self._loop),
            self._loop,
            SystemClock(),
            Intents(self._loop),
            is_pipelined=False,  # so that no outcome is delivered before it has passed the barrier
            gate=_Frontier(),
        )
        if pending is not None:
            execution.undo()
        try:
            async with asyncio.timeout(self._limit_seconds):
                if pending is None:
                    ended = await drive(execution, agent, journal)
                else:
                    ended = await run_code(execution, compensations.call_all(execution, pending))
        except TimeoutError:
            execution.seal(_Reached("too late"))
            await clear(execution)
            return hangs(run.id, run.agent, self._limit_seconds)
        finding = _judged(journal, execution, ended)
        await clear(execution)
        if finding.fit in (Fit.FITS, Fit.FAILS) and not _completes(ended):
            registered = compensations.registered(execution.replay.kept) if pending is None else pending
            finding = await _undoable(run, execution, registered) or finding
        if finding.fit is Fit.FAILS and self._is_code_of(run):
            return replace(finding, fit=Fit.FAILS_AS_BEFORE, remedy="It will fail with its present code too")
        return finding

    def _as_owned(self, journal: Journal) -> tuple[Journal, list[Undo] | None]:
        """Return the journal as its next owner reads it; and the compensations, if only those are left."""
        if run_retry.is_retried(journal):
            steps = run_retry.superseded(self._store, journal)
            record = Record(journal.run.length, Kind.SUPERSEDED, "", 0, write_superseded(steps))
            journal = replace(journal, records=(*journal.records, record))
        if not any(record.kind is Kind.UNDOING for record in journal.records):
            return journal, None
        stretch, _, pending = compensations.last_stretch(journal)
        return stretch, pending

    def _is_code_of(self, run: RunRow) -> bool:
        """Return whether the run's worker, or the one that died with it, had this code."""
        name = run.session or run.left_by
        session = self._store.read_session(name) if name else None
        if session is None or not session.code or not set(session.agents) <= AGENTS.keys():
            return False
        return code_version(session.agents) == session.code


def _completes(ended: asyncio.Task[Any] | None) -> bool:
    """Return whether the agent's code has come to its end: nothing is undone then."""
    if ended is None or ended.cancelled() or ended.exception() is not None:
        return False
    return not isinstance(ended.result(), NextTurn)


async def _undoable(run: RunRow, execution: Execution, registered: list[Undo]) -> CheckFinding | None:
    """Return a finding about a compensation that this code cannot call: it is called if the run fails."""
    for one in registered:
        try:
            await compensations.read_call(execution, one)
        except Divergence as error:
            return _finding(run, Fit.DIVERGES, error)
    return None


def _judged(journal: Journal, execution: Execution, ended: asyncio.Task[Any] | None) -> CheckFinding:
    run = journal.run
    if ended is None:
        why = execution.sealed
        if why is None or isinstance(why, _Reached):
            return _fitting(journal, execution, has_ended=False)
        return _finding(run, Fit.DIVERGES if isinstance(why, Divergence) else Fit.FAILS, why)
    error = asyncio.CancelledError() if ended.cancelled() else ended.exception()
    if (repeated := compensations.repeated_at_end(execution, ended)) is not None:
        return _finding(run, Fit.DIVERGES, repeated)
    if error is not None:
        return _finding(run, Fit.FAILS, error)
    missed = lookup.passed_over(execution) if isinstance(ended.result(), NextTurn) else None
    if missed is not None:
        return _finding(run, Fit.DIVERGES, lookup.left_in_turn(missed, run.id))
    return _fitting(journal, execution, has_ended=True)


def _fitting(journal: Journal, execution: Execution, *, has_ended: bool) -> CheckFinding:
    run, claims, forgets = journal.run, execution.claims, lookup.forgotten(execution)
    left = sorted(claims.unclaimed(), key=lambda one: one.seq)
    done = [
        one.step
        for one in left
        if isinstance(one, Recorded) and lookup.is_effect(one) and not lookup.is_reaction(execution, one)
    ]
    reads = [one.step for one in left if isinstance(one, Recorded) and not lookup.is_effect(one)]
    starts = [one.step for one in left if isinstance(one, Start) and one.is_open and lookup.is_effect(one)]
    effects = [step for step in done if step_name(step) not in forgets]
    left_out = [step for step in reads if step not in set(execution.called_differently)]
    gone = effects if has_ended else check_advice.passed(journal, execution, effects)
    warnings = (
        *_warned("executed again, with other arguments", execution.called_differently),
        *_warned("recorded and no longer called", left_out, check_advice.if_renamed(left_out)),
        *_warned(
            _ENDED if has_ended else _UNREACHED,
            effects,
            check_advice.if_renamed(effects),
            *check_advice.if_unreached(effects, left_out, gone=gone),
            _IF_IN_CHILD if effects and _has_children(execution) else "",
        ),
        *_registered(execution, has_ended=has_ended),
        *_warned("started, in doubt, and not called; a person is asked before the run ends", starts),
    )
    return CheckFinding(
        run=run.id,
        agent=run.agent,
        fit=Fit.FITS,
        replayed=execution.counts.replayed,
        unused=execution.replay.left,
        moved=tuple(f"{step_text(found)} → {step_text(called)}" for found, called in execution.moved),
        asked_again=tuple(map(step_text, execution.called_differently)),
        left_out=tuple(map(step_text, left_out)),
        unreached=tuple(map(step_text, effects)),
        in_doubt=tuple(map(step_text, starts)),
        warnings=warnings,
        is_escalated=run.state is State.ESCALATED,
        remedy="; ".join(one.remedy for one in warnings if one.remedy) or None,
    )


def _has_children(execution: Execution) -> bool:
    """Return whether a child of the run is unfinished: its code may call what the run has done."""
    return bool(execution.store.list_runs(RunQuery(parent=execution.run.id, states=IN_FLIGHT, limit=1)))


def _warned(what: str, steps: Sequence[str], *remedies: str) -> Iterator[Warned]:
    if steps:
        said = f"{what}: {', '.join(map(step_text, steps))}"
        yield Warned(said, "; ".join(filter(None, remedies)))


def _registered(execution: Execution, *, has_ended: bool) -> Iterator[Warned]:
    """Yield a warning about a compensation that may repeat another, or an effect, behind a new step."""
    if has_ended:
        return
    if (why := compensations.repeated(execution)) is not None:
        yield Warned(
            f"{why.what}; if the code does not register it later, the run is stopped", why.remedy or ""
        )
    elif (why := compensations.done_before(execution)) is not None:
        said = "if the run fails before the code calls it, it is stopped"
        yield Warned(f"{why.what}; {said}", why.remedy or "")


def _finding(run: RunRow, fit: Fit, why: BaseException) -> CheckFinding:
    if isinstance(why, NineLivesError):
        step = why.step and step_text(why.step)
        what = why.what if why.path is None else f"{why.what} (at {why.path})"
        return CheckFinding(run=run.id, agent=run.agent, fit=fit, step=step, what=what, remedy=why.remedy)
    is_refused = isinstance(why, _Refused)
    return CheckFinding(
        run=run.id,
        agent=run.agent,
        fit=fit,
        what=(str(why) if is_refused else f"the code raises {type(why).__name__}: {why}")[:500],
        remedy="Move it into a step: outside steps it happens again on every replay, and cannot be checked"
        if is_refused
        else "Fix the code: the run would fail with it",
    )


def hangs(run: str, agent: str, seconds: float) -> CheckFinding:
    """Return the finding for a run that does not reach its next step in time."""
    return CheckFinding(
        run=run,
        agent=agent,
        fit=Fit.HANGS,
        what=f"the code did not reach its next step within {seconds:g} s",
        remedy="Code outside steps must not wait or compute for long; --limit gives it more time",
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
    """The code tried to open a socket or start a process during a check."""


def _refuse(event: str, _: tuple[Any, ...]) -> None:
    if event in REFUSED:
        raise _Refused(f"{event} is refused during a check")


async def _rehearse_all(order: CheckOrder, store: Store, results: int) -> None:
    def say(line: Line) -> None:
        # Written at once, unbuffered: the process may be killed
        # at the next run, and the parent must know which.
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
    """Rehearse the runs of the `CheckOrder` on standard input. Never returns."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=CheckOrder)
    results, exit_code = os.dup(1), 0
    os.dup2(2, 1)  # the user's code may print: keep that apart from our messages
    try:
        logging.getLogger("ninelives").disabled = True  # the findings already say it
        # Opened before the audit hook, which refuses sockets: opening a store on a server needs one.
        store = open_store(order.url)
        sys.addaudithook(_refuse)
        agent_loader.load(order.target)
        asyncio.run(_rehearse_all(order, store, results))
    except UsageError as error:
        sys.stderr.write(f"ninelives: {type(error).__name__}: {error}\n")
        exit_code = EXIT_USAGE
    except NineLivesError as error:
        sys.stderr.write(f"ninelives: {type(error).__name__}: {error}\n")
        exit_code = EXIT_STORE
    sys.stderr.flush()
    os._exit(exit_code)


if __name__ == "__main__":
    main()
