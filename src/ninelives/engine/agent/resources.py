"""Resources that a run holds open: taken by `nl.hold`, checked when the run returns, until released.

The journal has each held resource, with its state when it was taken. When a run that was not in memory
returns, each resource is checked again, off the event loop: files, branches and URLs before the agent is
called; custom ones (`nl.Custom`) when the code holds them again on replay, before anything new begins. A
resource that is gone or changed is passed to the agent's `on_stale`, else a person is asked. If we die here,
the next worker checks again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from ninelives.core.errors import Corrupt, StaleResource, UsageError
from ninelives.core.ids import check_id, step_id
from ninelives.core.journal.answers import Says, read_taken
from ninelives.core.journal.replay import CARRIED, write_body
from ninelives.core.journal.resources import Holding, Target, difference, open_in, write_held, write_released
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Journal, Kind, Record
from ninelives.core.model.totals import BUILTIN
from ninelives.core.rules.inbox_rules import stop_answered
from ninelives.core.secret import masked_text
from ninelives.core.values.exceptions import decode_error, encode_error
from ninelives.engine.agent import resource_checks
from ninelives.engine.agent.resource_checks import Gone
from ninelives.engine.commit.ticket import Draft
from ninelives.engine.run.current import require_agent
from ninelives.engine.run.execution import Execution
from ninelives.engine.spec import callbacks
from ninelives.engine.spec.registry import AGENTS, Agent


@dataclass(frozen=True, slots=True)
class File:
    """A file, compared by size and content; above 16 MiB by size, both ends and modification time."""

    path: str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class GitBranch:
    """A branch of a local git repository, compared by the commit that it points to."""

    repo: str | os.PathLike[str]
    name: str


@dataclass(frozen=True, slots=True)
class Url:
    """An http(s) URL, which must answer. It is requested only when the run returns, not when it is taken."""

    url: str


@dataclass(frozen=True, slots=True)
class Custom:
    """Any other resource. `check`, plain or async, is called when the run returns.

    It returns False, or raises, when the resource is no longer usable as it was.
    """

    name: str
    check: Callable[[], Any]


Resource = File | GitBranch | Url | Custom


class Held:
    """A resource that is held until `release()`.

    In a `with` statement it is held until the block is left; parking the run does not release it.
    """

    __slots__ = ("_execution", "_is_released", "resource", "step")

    def __init__(self, execution: Execution, resource: Resource, step: str) -> None:
        self._execution, self.resource, self.step = execution, resource, step
        self._is_released = False

    def release(self) -> None:
        """Release the resource: it is no longer checked when the run returns. May be called twice."""
        if self._is_released or self._execution.sealed is not None:
            return
        self._is_released = True
        step = self._execution.next_position("release").id
        if not self._execution.replay.knows_line(step):
            keep(self._execution, Kind.RELEASED, step, write_released(self.step))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def hold(resource: Resource) -> Held:
    """Hold a resource: whenever the run returns after a crash or a wait, it is checked, until released.

    If it is then gone or changed, the agent's `on_stale` handles it, else a person is asked. It reads the
    file, or calls git, before it returns: for a large or slow one, `await asyncio.to_thread(nl.hold, ...)`.
    Raises UsageError when it cannot be held: a directory, no repository, no such branch, no http URL.
    """
    execution = require_agent("nl.hold()")
    target = _target(resource)
    resource_checks.check(target)
    step = execution.next_position("hold").id
    if execution.replay.knows_line(step):
        if isinstance(resource, Custom) and step in open_in(execution.replay.kept):
            execution.on_loop(_Recheck(execution, resource, step).begin)
        return Held(execution, resource, step)
    found = execution.replay.take(step)
    if found is not None:
        raise decode_error(bytes(found.body.e or b""))
    try:
        # Here, not in a thread: the agent's next line may change the resource, and this state is compared.
        evidence = {} if isinstance(resource, Url) else resource_checks.examine(target)
    except Gone as gone:
        error = UsageError(
            f"the {target} cannot be held: {gone}", run=execution.run.id, step=step, remedy="Make it first"
        )
        execution.note(Kind.FAILURE, step, write_body(None, error=encode_error(error)), BUILTIN)
        raise error from None
    _adopt(execution, resource, target, step)
    keep(execution, Kind.HELD, step, write_held(Holding(target, evidence)))
    return Held(execution, resource, step)


def _adopt(execution: Execution, resource: Resource, target: Target, step: str) -> None:
    """Take over a resource that an earlier turn held, so that it is held once and can be released."""
    for carried, holding in open_in(execution.replay.kept).items():
        if carried.startswith(CARRIED) and holding.target == target:
            keep(execution, Kind.RELEASED, step, write_released(carried))
            if isinstance(resource, Custom):
                execution.on_loop(_Recheck(execution, resource, step).begin)


def carried(execution: Execution) -> list[Draft]:
    """Return the records that carry held resources into the next turn."""
    held = open_in(execution.replay.kept).values()
    return [
        (Kind.HELD, step_id(CARRIED, "hold", number), write_held(holding))
        for number, holding in enumerate(held)
    ]


def keep(execution: Execution, kind: Kind, step: str, body: bytes) -> None:
    """Record something that the next turn carries on."""
    execution.note(kind, step, body)
    execution.replay.kept = (*execution.replay.kept, Record(-1, kind, step, 0, body))


def _target(resource: object) -> Target:
    if isinstance(resource, File):
        return Target("file", os.path.abspath(os.fspath(resource.path)))  # noqa: PTH100 (no links resolved)
    if isinstance(resource, GitBranch):
        return Target("branch", os.path.abspath(os.fspath(resource.repo)), resource.name)  # noqa: PTH100
    if isinstance(resource, Url):
        return Target("url", resource.url)
    if isinstance(resource, Custom):
        return Target("custom", name=check_id(resource.name, "name of a resource"))
    raise UsageError(
        f"a {type(resource).__name__} cannot be held",
        remedy="Hold nl.File, nl.GitBranch, nl.Url or nl.Custom",
    )


def _resource(target: Target) -> Resource:
    if target.kind == "file":
        return File(target.at)
    if target.kind == "branch":
        return GitBranch(target.at, target.name)
    return Url(target.at)


# ---------------------------------------------------------------------------------- when a run returns


class Accepted:
    """Whether a person has accepted that the run continues with all its resources as they are."""

    def __init__(self, _: Execution) -> None:
        self.all = False


async def recheck(execution: Execution, agent: Agent, journal: Journal) -> None:
    """Check again the resources of a run that returns, before its agent is called.

    Seals the execution with StaleResource when a person has to decide. Raises what the agent's `on_stale`
    raises.
    """
    accepted = execution.component(Accepted)
    # CRASH: an answer is taken, and the new state not recorded: the answer is still the last record.
    accepted.all = _is_accepted(journal)
    for step, holding in open_in(execution.replay.kept).items():
        if holding.target.kind == "custom":
            continue
        stale, evidence = await _examined(holding)
        execution.checked(holding.target, stale)
        if stale is None:
            continue
        error = _stale(execution, _resource(holding.target), holding.target, stale, step)
        if not accepted.all:
            if not await _handled(agent, error):
                execution.seal(error)
                return
            # Again: `on_stale` may have repaired it, and the state after that is the one to compare with.
            _, evidence = await _examined(holding)
        _renew(execution, step, holding.target, evidence)


def _is_accepted(journal: Journal) -> bool:
    """Return whether a person has just decided that the run continues with its resources as they are."""
    item = stop_answered(journal.run, journal.items)
    if item is not None:
        return item.kind is ItemKind.RESOURCE
    # The worker that took the answer died before it recorded the new state: the answer is the last record.
    last = journal.records[-1]
    try:
        taken = read_taken(last) if last.kind is Kind.ANSWER else None
    except Corrupt:  # another kind of answer
        return False
    return taken is not None and taken.kind is ItemKind.RESOURCE and taken.answer.says is Says.RETRY


async def _examined(holding: Holding) -> tuple[str | None, dict[str, str] | None]:
    """Examine a resource; return what is wrong with it (or None), and its state now, if it exists."""
    try:
        evidence = await asyncio.to_thread(resource_checks.examine, holding.target)
    except Gone as gone:
        return str(gone), None
    return difference(holding.evidence, evidence) or None, evidence


async def _handled(agent: Agent, error: StaleResource) -> bool:
    """Call the agent's `on_stale`; False when there is none, or when it raises the StaleResource again."""
    if agent.on_stale is None:
        return False
    try:
        await callbacks.call("on_stale", agent.on_stale, error)
    except StaleResource:
        return False
    return True


def _renew(execution: Execution, step: str, target: Target, evidence: dict[str, str] | None) -> None:
    """Record the resource's state now as the one to compare with; release one that is gone."""
    if evidence is None:
        keep(execution, Kind.RELEASED, step, write_released(step))
    else:
        keep(execution, Kind.HELD, step, write_held(Holding(target, evidence)))


def _stale(execution: Execution, resource: Resource, target: Target, what: str, step: str) -> StaleResource:
    error = StaleResource(
        f"the {target}, which the run holds, is not what it was: {what}",
        run=execution.run.id,
        step=step,
        remedy="Put it back, or go on with it as it is (retry); fail ends the run",
    )
    error.resource = resource
    return error


class _Recheck:
    """Runs the check of an `nl.Custom` resource; until it ends, nothing new begins in the run."""

    def __init__(self, execution: Execution, resource: Custom, step: str) -> None:
        self._execution, self._resource, self._step = execution, resource, step

    def begin(self) -> None:
        if self._execution.component(Accepted).all:
            return
        self._execution.delivery.running.add(self)
        self._execution.replay.left += 1  # keeps the run in replay: nothing new begins until we know
        # In no run's context: tasks that the check creates must not become branches.
        # Kept (by `running`, through us): the event loop refers to its tasks only weakly.
        self._task = asyncio.Task(self._check(), loop=self._execution.loop, context=Context())
        self._task.add_done_callback(self._end)

    async def _check(self) -> StaleResource | None:
        check, what, target = self._resource.check, "its check says so", _target(self._resource)
        try:
            if await callbacks.call("its check", check) is not False:
                self._execution.checked(target, None)
                return None
        except Exception as error:  # noqa: BLE001 (any error means: the resource is stale)
            said = str(error) if isinstance(error, callbacks.Unruly) else f"{type(error).__name__}: {error}"
            what = masked_text(said)
        self._execution.checked(target, what)
        stale = _stale(self._execution, self._resource, target, what, self._step)
        return None if await _handled(AGENTS[self._execution.run.agent], stale) else stale

    def _end(self, task: asyncio.Task[StaleResource | None]) -> None:
        execution = self._execution
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            stale = task.result()
        else:
            stale = StaleResource(f"on_stale raised {error!r}", run=execution.run.id, step=self._step)
        if stale is not None:
            execution.seal(stale)
        execution.replay.left -= 1
        execution.delivery.running.discard(self)
        execution.delivery.check_soon()
