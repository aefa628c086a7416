"""Open starts that no call claims: never forgotten, but settled by a person before the run ends.

A non-resumable action was started, its outcome is unknown, and the run's code has ended without a call that
claims it. Its arguments are known only in part, so the probe cannot be called: a person is asked. Whatever
the answer, nothing is started, and the run then ends as its code decided. If we die here, the next worker
finds the doubt in the journal and the question in the inbox, and comes here again. See docs/decisions/0015.
"""

from __future__ import annotations

import logging
from contextlib import suppress

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ninelives.core.errors import Divergence
from ninelives.core.ids import parse_step_id
from ninelives.core.journal.matching import Start
from ninelives.core.step_ids import step_text
from ninelives.core.values.codec import UNTYPED_CODEC
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.engine.protected import business_keys
from ninelives.engine.protected.protected_call import ProtectedCall
from ninelives.engine.run import lookup
from ninelives.engine.run.execution import Execution
from ninelives.engine.spec.registry import STEPS, Step, make_step

LOGGER = logging.getLogger("ninelives")


def unclaimed(execution: Execution) -> list[Start]:
    """Return the unclaimed starts of non-resumable actions that may have taken effect.

    Such starts of resumable actions are only logged.
    """
    if not execution.is_resumed:
        return []
    starts = [one for one in execution.claims.open_starts() if lookup.is_effect(one)]
    for start in starts:
        if not start.is_protected:
            LOGGER.warning(
                "run %r: %s was started and may have taken effect, and the code no longer calls it",
                execution.run.id,
                step_text(start.step),
            )
    return [start for start in starts if start.is_protected]


async def settle(execution: Execution, starts: list[Start]) -> None:
    """Have a person settle the unclaimed starts; called at the end of a run."""
    for start in starts:
        action = _protected_call(execution, start)
        action.load_standing()
        if action.branch is not None:
            action.branch.protected_call = action  # under way: an ending run waits for its outcome
        ended = await business_keys.settle_start(action)
        if ended is not None:
            with suppress(Exception):  # the failure is recorded; the run ends as its code decided
                await action.conclude(ended)
        if action.branch is not None:
            action.branch.protected_call = None


def left_behind(start: Start, run: str) -> Divergence:
    """Return the error for a run that has such a start while its code does not end when cancelled."""
    return Divergence(
        "this step was started, its outcome is unknown, and the code no longer calls it",
        run=run,
        step=start.step,
        remedy="Put the call back; and let the run's other tasks end when they are cancelled",
    )


def _protected_call(execution: Execution, start: Start) -> ProtectedCall:
    """Rebuild the call that made the start, as far as it is known."""
    step = _step(parse_step_id(start.step).name)
    action = ProtectedCall(execution, step, step.effect, (), {}, _never)  # type: ignore[arg-type]  # it is not resumable
    action.is_wanted = False
    action.own_position.adopt(start.step)
    action.fingerprint = Fingerprint(bytes.fromhex(start.body.f), _shown(start), dict(start.body.a))
    action.use_key(start.key or None)
    return action


def _shown(start: Start) -> bytes:
    """Return the known part of the arguments as JSON, to show to a person."""
    return msgspec.json.encode({name: _raw(text) for name, text in start.body.a.items()})


def _raw(text: str) -> object:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text  # the preview was cut short
    return Raw(text.encode())


def _step(name: str) -> Step:
    """Return a stand-in for the step, with the type of its result if it is still declared."""
    # Non-resumable whatever the code declares today: the start was.
    made = make_step(_never, name=name, resumable=False)
    declared = [
        step
        for one in STEPS.values()
        if isinstance(step := getattr(one, "__ninelives__", None), Step)
        and (step.name == name or name in step.aliases)
    ]
    codec = declared[0].codec if declared else UNTYPED_CODEC
    return replace(made, codec=codec)


async def _never() -> None:
    """Stand in for a body that is never started."""
