"""What the caches of a store hold, by step, and how often their answers were used, by agent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from ninelives.core.model.counter import Counter
from ninelives.core.model_calls import cached_answer
from ninelives.core.model_calls.declarations import EXACT, MEANING, WORDS
from ninelives.core.model_calls.meaning.bound import upper_bound
from ninelives.models import entries, upkeep
from ninelives.models.entries import Kept

_DOUBT = 0.05
ANSWERS, TOKENS = "cache_answers", "cache_tokens"


class StepCache(Struct, kw_only=True):
    """What is kept for one step: `usable` answers, those that have `expired`, and those that are `unusable`.

    Unusable are damaged answers, and those that are encrypted with a key that is not here. `tokens` are what
    the usable ones cost when they were asked for: each hit saves those of its answer.

    `compared` is how often the model was asked although an answer was near by meaning (would-have-hits), and
    `disagreed` how often it said something else. `at_most` is the share of wrong answers that is exceeded
    with a probability of 5 %.
    """

    step: str
    usable: int = 0
    expired: int = 0
    unusable: int = 0
    bytes: int = 0
    tokens: int = 0
    oldest_ms: int | None = None
    compared: int = 0
    disagreed: int = 0
    at_most: float = 1.0


class AgentHits(Struct, frozen=True, kw_only=True):
    """How often the runs of an agent used cached answers, or missed, and what those had cost in tokens."""

    agent: str
    exact: int
    words: int
    meaning: int
    missed: int
    tokens: int


class CacheReport(Struct, frozen=True, kw_only=True):
    """What is kept, and what it has saved."""

    steps: tuple[StepCache, ...]
    agents: tuple[AgentHits, ...]


def report(store: Any, step: str | None = None) -> CacheReport:
    """Read all answers of a store, or of one step, and its counters. Raises StoreError."""
    now_ms = store.read_clock()
    found: dict[str, StepCache] = {}
    for kept in entries.answers(store, step):
        _add(found, kept, now_ms)
    for name, note in upkeep.notes(store, step):
        if note.comparison is not None and note.comparison.band >= 0:
            of_step = found.setdefault(name, StepCache(step=name))
            of_step.compared += 1
            of_step.disagreed += not note.comparison.right
    for of_step in found.values():
        of_step.at_most = upper_bound(of_step.disagreed, of_step.compared, _DOUBT)
    return CacheReport(
        steps=tuple(found[name] for name in sorted(found)), agents=tuple(hits(store.read_counters()))
    )


def _add(found: dict[str, StepCache], kept: Kept, now_ms: int) -> None:
    answer = kept.answer
    name = answer.step if answer is not None else cached_answer.step_in(kept.name)
    of_step = found.setdefault(name, StepCache(step=name))
    of_step.bytes += kept.bytes
    if answer is None:
        of_step.unusable += 1
    elif cached_answer.is_over(answer, answer.ttl_ms, now_ms):
        of_step.expired += 1
    else:
        of_step.usable += 1
        of_step.oldest_ms = min(answer.at_ms, of_step.oldest_ms or answer.at_ms)
        if answer.usage is not None:
            of_step.tokens += answer.usage.tokens_in + answer.usage.tokens_out


def hits(counters: Iterable[Counter]) -> list[AgentHits]:
    """Return how often cached answers were used, by agent."""
    found: dict[str, dict[str, int]] = {}
    for one in counters:
        if one.name in (ANSWERS, TOKENS):
            of_agent = found.setdefault(one.labels.get("agent", ""), {})
            kind = one.labels.get("near", TOKENS)
            of_agent[kind] = of_agent.get(kind, 0) + one.value
    return [
        AgentHits(
            agent=agent,
            exact=counts.get(EXACT, 0),
            words=counts.get(WORDS, 0),
            meaning=counts.get(MEANING, 0),
            missed=counts.get("miss", 0),
            tokens=counts.get(TOKENS, 0),
        )
        for agent, counts in sorted(found.items())
    ]
