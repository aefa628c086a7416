"""Answers by meaning: a question beside those that have an answer, served once comparisons permit it.

Each process keeps the questions and comparisons of its caches in memory, and reads what is new at most once a
second (`models.meaning_notes`). What fails here, the embedder among it, is a miss: the model is asked. An
answer that was asked for although another one was near is compared with it, by the thread that keeps answers.
If we die before: the comparison is missing, and the bound is higher.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ninelives.core.errors import NineLivesError
from ninelives.core.model_calls import cached_answer
from ninelives.core.model_calls.cached_answer import CachedAnswer, CacheQuestion, NearQuestion
from ninelives.core.model_calls.declarations import Cache
from ninelives.core.model_calls.meaning.choice import NEAREST, Meaning, MeaningChoice, choose
from ninelives.core.model_calls.meaning.question import question_of
from ninelives.engine.context import Frame
from ninelives.engine.spec.registry import Step
from ninelives.models import entries
from ninelives.models.entries import CacheStore
from ninelives.models.meaning_notes import MeaningNotes

LOGGER = logging.getLogger("ninelives")
READ_SECONDS = 1.0
MOST_CACHES = 256
"""How many caches a process keeps in memory; each system prompt, tenant and version has one."""


class _Known:
    """The notes of one cache, in memory; `lock` lets one thread at a time at them."""

    def __init__(self, notes: MeaningNotes) -> None:
        self.notes, self.lock, self.read_at = notes, threading.Lock(), float("-inf")


class MeaningCache:
    """Finds answers to questions that mean the same, and learns how often they are right."""

    def __init__(self, store: CacheStore) -> None:
        self._store = store
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def look_up(
        self, step: Step, frame: Frame, cache: Cache, question: CacheQuestion, arguments: bytes, secret: bytes
    ) -> CachedAnswer | None:
        """Return an answer to serve; note on the frame what the question was beside."""
        rule = cache.meaning
        found = question_of(msgspec.json.decode(arguments), rule.of) if rule is not None else None
        if rule is None or found is None:
            return None
        text, rest = found
        try:
            vector = await _embedded(rule, text)
            prefix = cached_answer.notes_of(
                step.name, [cache.version, question.scope, rule.model, rule.of, rest], secret
            )
            choice, answer = await asyncio.to_thread(
                self._choose, prefix, step.name, rule, question, text, vector
            )
        except Exception as error:  # noqa: BLE001 (the embedder is the user's: whatever it is, the model is asked)
            LOGGER.warning(
                "similar questions of %s could not be looked up, so the model is asked: %s", step.name, error
            )
            return None
        frame.question = replace(
            frame.question or question, beside=NearQuestion(prefix, text, vector, choice)
        )
        return answer

    def _choose(
        self,
        prefix: str,
        step: str,
        rule: Meaning,
        question: CacheQuestion,
        text: str,
        vector: Sequence[float],
    ) -> tuple[MeaningChoice, CachedAnswer | None]:
        known, draw = self._known_of(prefix), random.random()
        with known.lock:
            if time.monotonic() - known.read_at >= READ_SECONDS:
                known.notes.refresh()
                known.read_at = time.monotonic()
            for _ in range(NEAREST):
                near = known.notes.index.nearest(vector)
                choice = choose(rule, text, near, known.notes.record, draw)
                if choice.entry is None:
                    break
                answer = self._answer(step, choice.entry, question)
                if answer is not None:
                    return choice, answer if choice.serve else None
                # Cleared or damaged meanwhile.
                known.notes.index.remove(choice.entry)
            return choose(rule, text, (), known.notes.record, draw), None

    def _known_of(self, prefix: str) -> _Known:
        known = self._known.get(prefix)
        if known is None:
            known = self._known[prefix] = _Known(MeaningNotes(self._store, prefix))
            if len(self._known) > MOST_CACHES:
                self._known.popitem(last=False)
        self._known.move_to_end(prefix)
        return known

    def _answer(self, step: str, entry: str, question: CacheQuestion) -> CachedAnswer | None:
        answer = entries.lookup(self._store, step, replace(question, answer=entry)).answer
        is_over = answer is None or cached_answer.is_over(answer, answer.ttl_ms, self._store.now_ms())
        return None if is_over else answer

    def note(self, step: Step, rule: Meaning, question: CacheQuestion, value: bytes, ttl_ms: int) -> None:
        """Compare an answer with the one that was near, and note the question. Raises StoreError."""
        beside = question.beside
        if beside is None:
            return
        known, choice = self._known_of(beside.prefix), beside.choice
        cached = self._answer(step.name, choice.entry, question) if choice.entry is not None else None
        right = None if cached is None else _same(step, rule, bytes(cached.value), value)
        with known.lock:
            if right is not None:
                known.notes.add_comparison(choice.compared(right))
            if not right and self._answer(step.name, question.answer, question) is not None:
                known.notes.add_question(question.answer, beside.text, beside.vector, ttl_ms)


async def _embedded(rule: Meaning, text: str) -> Sequence[float]:
    if inspect.iscoroutinefunction(rule.embed):
        found: Any = await rule.embed([text])
    else:
        found = await asyncio.to_thread(rule.embed, [text])
        if inspect.isawaitable(found):
            found = await found
    return [float(one) for one in found[0]]


def _same(step: Step, rule: Meaning, cached: bytes, value: bytes) -> bool | None:
    """Return whether two answers say the same; None if that cannot be said."""
    try:
        one, other = step.codec.decode(cached, is_whole=True), step.codec.decode(value, is_whole=True)
        if rule.same is None:
            return bool(one == other)
        found = rule.same(one, other)
        return bool(asyncio.run(_awaited(found)) if inspect.isawaitable(found) else found)
    except NineLivesError:
        return None
    except Exception as error:  # noqa: BLE001 (the user's function)
        LOGGER.warning("two answers of %s could not be compared: %s", step.name, error)
        return None


async def _awaited(found: Any) -> Any:
    return await found
