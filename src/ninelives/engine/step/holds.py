"""Why a call must wait before the gate (halts, breakers, rates, budgets), and the wait: a durable one.

Asked again when what governs has changed, and at the time that it says. If we die meanwhile, the next worker
makes the same call and asks again: nothing of the wait is recorded.
"""

from __future__ import annotations

from ninelives.core.errors import PolicyFailed
from ninelives.core.governance.accounts import Requirement
from ninelives.core.governance.verdicts import Call
from ninelives.core.model.run import News
from ninelives.engine.governor import Hold
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.waits import wait
from ninelives.engine.spec.registry import Step
from ninelives.engine.step import judging

AGAIN_MS = 60_000
"""A call that is held asks again at least this often: what lifts the hold may fail to wake a parked run."""
SOON_MS = 1_000
"""When to ask again if what holds a call says a time that is over."""
BRIEF_MS = 3_000
"""How long a call that only waits for its turn at a provider stays in memory: parking would cost more."""


def requirements(execution: Execution, step: Step) -> tuple[Requirement, ...]:
    """Return what the commit of an intent requires. Ask before `held` is asked: nothing was halted since."""
    return execution.governing.requirements(step)


async def wait_unheld(execution: Execution, step: Step, call: Call) -> tuple[Requirement, ...]:
    """Wait until nothing holds a call; return what its intent then requires.

    Nothing is awaited between the last question and the return. Raises PolicyFailed.
    """
    while (requires := free(execution, step, call)) is None:
        hold = held(execution, step, call)
        if hold is not None:
            await _wait_while(execution, step, call, hold)
    return requires


def free(execution: Execution, step: Step, call: Call) -> tuple[Requirement, ...] | None:
    """Return what the intent of a call requires, if nothing holds it; else None. Raises PolicyFailed."""
    # First: another thread may read a halt at any moment. One that `held` did not see must refuse the intent.
    requires = requirements(execution, step)
    return requires if held(execution, step, call) is None else None


def held(execution: Execution, step: Step, call: Call) -> Hold | None:
    governor = execution.governor
    return judging.held(governor, step, call) if governor is not None else None


async def _wait_while(execution: Execution, step: Step, call: Call, hold: Hold) -> None:
    """Wait until a hold is over, or another one has taken its place."""
    due_ms = _due_ms(execution, hold)
    report(execution, call, hold)

    def check(news: News) -> bool | None:
        try:
            is_same = held(execution, step, call) == hold
        except PolicyFailed:
            is_same = False  # asked again outside of this check, which stops the run
        return None if is_same and news.now_ms < due_ms else True

    stays_ms = BRIEF_MS if hold.is_brief else None
    await wait(execution, hold.what, check, due_ms=due_ms, stays_ms=stays_ms)


def report(execution: Execution, call: Call, hold: Hold) -> None:
    if execution.hooks is not None:
        execution.hooks.held(execution, call.step, hold.what)


def _due_ms(execution: Execution, hold: Hold) -> int:
    """Return when to ask again at the latest."""
    now_ms = execution.store.now_ms()
    if hold.due_ms is not None and hold.due_ms <= now_ms:
        return now_ms + SOON_MS
    return min(now_ms + AGAIN_MS, hold.due_ms or now_ms + AGAIN_MS)


async def wait_within(execution: Execution, hold: Hold) -> None:
    """Wait until a reservation may be tried again: at the time that the governor says, or on a change."""
    due_ms = _due_ms(execution, hold)
    times = 0

    def check(news: News) -> bool | None:
        nonlocal times
        times += 1
        return True if times > 1 or news.now_ms >= due_ms else None

    stays_ms = BRIEF_MS if hold.is_brief else None
    await wait(execution, hold.what, check, due_ms=due_ms, stays_ms=stays_ms)
