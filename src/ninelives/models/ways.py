"""Asks a model several ways: which one first, when a second request is sent, and what is recorded of it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from ninelives.core.errors import InvariantViolation
from ninelives.core.model.counter import FALLBACKS, HEDGES_LOST, HEDGES_REFUSED, HEDGES_WON, MODEL_REQUESTS
from ninelives.core.model.totals import error_text
from ninelives.core.model_calls.answered import Answered
from ninelives.core.model_calls.faults import chosen
from ninelives.engine.context import Frame, Running
from ninelives.engine.model_calls import Asks
from ninelives.engine.spec.registry import Step
from ninelives.models.known import KnownStep
from ninelives.models.race import Race, Unanswered

ERRORS_KEPT = 5
"""How many errors of ways are recorded with an outcome; the latest."""


class Ways:
    """The ways of all steps, as far as this process knows them."""

    def __init__(self) -> None:
        self._known: dict[Step, KnownStep] = {}

    async def ask(
        self,
        execution: Running,
        step: Step,
        frame: Frame,
        ways: tuple[Asks, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Return the first answer of one attempt, and note in `frame.answered` how it came.

        Raises the error of a way if none answered: one that a retry may change, if there is any.
        """

        def send(number: int) -> Awaitable[Any]:
            return ways[number](*args, **kwargs)

        race = Race(execution, step, frame, self._known_of(step), send)
        try:
            return await race.answer()
        except Unanswered:
            raise self._error(step, race) from None
        finally:
            _note(execution, frame, race)

    def _known_of(self, step: Step) -> KnownStep:
        known = self._known.get(step)
        if known is None:
            if step.model_call is None:
                raise InvariantViolation(f"{step.name} declares nothing of its model calls")
            known = self._known[step] = KnownStep(step.model_call)
        return known

    def _error(self, step: Step, race: Race) -> BaseException:
        error = chosen([one for _, one in race.errors], step.retry)
        for way, other in race.errors:
            if other is not error:
                error.add_note(f"another way to ask failed too: {way.name}: {error_text(other)}")
        return error


def _note(execution: Running, frame: Frame, race: Race) -> None:
    """Write down how an attempt was answered, with what earlier attempts have sent; and count it."""
    before, winner = frame.answered, race.winner
    failed = tuple(f"{way.name}: {error_text(error)}" for way, error in race.errors)
    frame.answered = Answered(
        by="" if winner is None else winner.way.name,
        ways=race.sent + (before.ways if before is not None else 0),
        hedged_ms=race.hedged_ms,
        lost=race.lost + (before.lost if before is not None else 0),
        failed=((before.failed if before is not None else ()) + failed)[-ERRORS_KEPT:],
    )
    done = execution.done
    done[MODEL_REQUESTS] += race.sent
    if race.sent > 1 or race.denied:
        has_won = winner is not None and winner.is_hedge
        done[HEDGES_WON] += has_won
        done[HEDGES_LOST] += race.hedges - has_won
        done[HEDGES_REFUSED] += race.denied
        done[FALLBACKS] += race.sent - 1 - race.hedges
