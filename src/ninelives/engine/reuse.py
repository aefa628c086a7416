"""What the run that a fork came from did after the fork's point: taken over, repeated, or asked about.

A non-resumable action that was done once is not done again because somebody wanted to see what would have
been. When a fork comes to one, with the same arguments at the same place, its `after` decides. A person's
answer is recorded before the action starts; if we die between the two, the next life finds it.
"""

from __future__ import annotations

from ninelives.core.origins import Done, Origin
from ninelives.engine import questions
from ninelives.engine.act import Act, Ended
from ninelives.engine.context import BRANCH, Branch

_REUSE, _REPEAT = "reuse", "repeat"


async def offer(act: Act) -> Ended | None:
    """Return the outcome that a fork takes over from the run that it came from; None: do it."""
    found = _done(act)
    if found is None:
        return None
    origin, done = found
    after = origin.after if origin.after in (_REUSE, _REPEAT) else await _ask(act, origin)
    return Ended(data=bytes(done.v)) if after == _REUSE else None


def _done(act: Act) -> tuple[Origin, Done] | None:
    passage = act.execution.replay.passage
    for _, origin in reversed(passage.origins if passage is not None else []):
        done = origin.done.get(act.place.id)
        if done is not None and done.f == act.asked.digest.hex():
            return origin, done
    return None


async def _ask(act: Act, origin: Origin) -> str:
    question = (
        f"{act.step.name} was done by the run {origin.run!r}, from which this one was forked: "
        f"take its result ({_REUSE}), or do it once more ({_REPEAT})?"
    )
    # A branch of its own: on replay nobody asks, and the agent's own questions keep their places.
    token = BRANCH.set(Branch(f"fork/{act.place.id}"))
    try:
        return await questions.ask(question, options=[_REUSE, _REPEAT])
    finally:
        BRANCH.reset(token)
