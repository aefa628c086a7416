"""What the run that a fork came from did after the fork's point: taken over, repeated, or asked about.

A non-resumable action that was done once is not done again because somebody wanted to see what would have
been. When a fork comes to one, with the same arguments, its `after` decides: at the same place or, since the
code may have moved, anywhere, each once. The call then goes on under the id that the action had, so that the
next life knows which were met. A person's answer is recorded before the action starts; if we die between the
two, the next life finds it.
"""

from __future__ import annotations

from ninelives.core.ids import parse_step_id
from ninelives.core.journal.fork_origin import Done, Origin
from ninelives.engine.context import BRANCH, Branch
from ninelives.engine.protected.protected_call import Ended, ProtectedCall
from ninelives.engine.step import question

_REUSE, _REPEAT = "reuse", "repeat"


async def offer(act: ProtectedCall) -> Ended | None:
    """Return the outcome that a fork takes over from the run that it came from; None: do it."""
    found = _done(act)
    if found is None:
        return None
    origin, done = found
    after = origin.after if origin.after in (_REUSE, _REPEAT) else await _ask(act, origin)
    return Ended(data=bytes(done.v)) if after == _REUSE else None


def _done(act: ProtectedCall) -> tuple[Origin, Done] | None:
    replay, asked = act.execution.replay, act.asked.digest.hex()
    for _, origin in reversed(replay.passage.origins if replay.passage is not None else []):
        done = origin.done.get(act.place.id)
        if done is not None and done.f == asked:
            replay.ids.add(act.place.id)
            return origin, done
        for step, done in origin.done.items():
            if done.f == asked and step not in replay.ids and _is_named(act, step):
                act.natural.adopt(step)
                replay.ids.add(step)
                return origin, done
    return None


def _is_named(act: ProtectedCall, step: str) -> bool:
    return parse_step_id(step).name in (act.step.name, *act.step.aliases)


async def _ask(act: ProtectedCall, origin: Origin) -> str:
    what = (
        f"{act.step.name} was done by the run {origin.run!r}, from which this one was forked: "
        f"take its result ({_REUSE}), or do it once more ({_REPEAT})?"
    )
    # A branch of its own: on replay nobody asks, and the agent's own questions keep their places.
    token = BRANCH.set(Branch(f"fork/{act.place.id}"))
    try:
        return await question.ask(what, options=[_REUSE, _REPEAT])
    finally:
        BRANCH.reset(token)
