"""Reuse, repeat or ask about what the parent run did after the fork's point.

A fork must not blindly repeat a non-resumable action that its parent run already performed. When the fork
calls such an action with the same arguments, its `after` option decides. The parent's action is found at the
same position or, since the code may have moved, at any other; each is used once. The call continues under
the id that the action had in the parent, so that the next worker knows which ones were used. A person's
answer is recorded before the action starts; if we die between the two, the next worker finds it.
"""

from __future__ import annotations

from ninelives.core.ids import parse_step_id
from ninelives.core.journal.fork_origin import Done, Origin
from ninelives.engine.context import BRANCH, Branch
from ninelives.engine.protected.protected_call import Ended, ProtectedCall
from ninelives.engine.step import question

_REUSE, _REPEAT = "reuse", "repeat"


async def offer(action: ProtectedCall) -> Ended | None:
    """Return the outcome that a fork reuses from its parent run; None if the action must be performed."""
    found = _done(action)
    if found is None:
        return None
    origin, done = found
    after = origin.after if origin.after in (_REUSE, _REPEAT) else await _ask(action, origin)
    return Ended(data=bytes(done.v), taint=done.o) if after == _REUSE else None


def _done(action: ProtectedCall) -> tuple[Origin, Done] | None:
    replay, digest = action.execution.replay, action.fingerprint.digest.hex()
    for _, origin in reversed(replay.passage.origins if replay.passage is not None else []):
        done = origin.done.get(action.position.id)
        if done is not None and done.f == digest:
            # Used: a second equal call must find another one, or be carried out.
            replay.ids.add(action.position.id)
            return origin, done
        for step, done in origin.done.items():
            if done.f == digest and step not in replay.ids and _is_named(action, step):
                action.own_position.adopt(step)
                replay.ids.add(step)
                return origin, done
    return None


def _is_named(action: ProtectedCall, step: str) -> bool:
    return parse_step_id(step).name in (action.step.name, *action.step.aliases)


async def _ask(action: ProtectedCall, origin: Origin) -> str:
    what = (
        f"{action.step.name} was done by the run {origin.run!r}, from which this one was forked: "
        f"take its result ({_REUSE}), or do it once more ({_REPEAT})?"
    )
    # A separate branch: on replay this question is not asked, and the agent's questions keep their positions.
    token = BRANCH.set(Branch(f"fork/{action.position.id}"))
    try:
        return await question.ask(what, options=[_REUSE, _REPEAT])
    finally:
        BRANCH.reset(token)
