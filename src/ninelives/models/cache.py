"""The cache of a runtime's model calls: an attempt is looked up first, and what it answers is kept.

A lookup reads one document; what fails in it is a miss, since the model can be asked. An answer is kept by a
thread, after the outcome that it comes from is durable: no call waits for it. If we die before: it is not
kept, nothing else. A hit is copied into the run's journal, so nothing that happens to the cache later changes
a run that has used it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from ninelives.core.errors import NineLivesError, NotSerializable, StoreError
from ninelives.core.governance.costs import TOKENS, USD
from ninelives.core.governance.taint import TaintChange
from ninelives.core.model.counter import CACHE_EXACT, CACHE_MEANING, CACHE_MISS, CACHE_TOKENS, CACHE_WORDS
from ninelives.core.model_calls import cached_answer, used_answers
from ninelives.core.model_calls.answered import Answered, CachedFrom
from ninelives.core.model_calls.cached_answer import CachedAnswer, CacheQuestion
from ninelives.core.model_calls.declarations import EXACT, MEANING, WORDS, Cache
from ninelives.core.values.fingerprint import whole
from ninelives.core.values.token_usage import usage_in
from ninelives.engine.context import Frame, Running
from ninelives.engine.spec.registry import Step
from ninelives.models import entries
from ninelives.models.entries import CacheStore

_SLOTS = {EXACT: CACHE_EXACT, WORDS: CACHE_WORDS, MEANING: CACHE_MEANING}
if TYPE_CHECKING:
    from ninelives.models.meaning_cache import MeaningCache

MOST_WAITING = 1_000
LOGGER = logging.getLogger("ninelives")


class Hit(Struct, frozen=True):
    """An answer that was found, and its value as this step returns it."""

    value: Any
    kind: str
    answer: CachedAnswer


class AnswerCache:
    """Looks answers up and keeps them, for all runs of a runtime."""

    def __init__(self, store: CacheStore) -> None:
        self._store = store
        self._secret: bytes | None = None
        self._keeper = Keeper()
        self._meaning: MeaningCache | None = None
        self._said: set[Step] = set()

    def close(self) -> None:
        """Keep what is still to be kept, and stop."""
        self._keeper.close()

    async def look_up(
        self,
        execution: Running,
        step: Step,
        frame: Frame,
        cache: Cache,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Hit | None:
        """Return a kept answer to this call; note on the frame what it asks, and how it was answered."""
        scope = cached_answer.scope_of(cache.scope, execution.run.labels)
        if scope is None:
            self._say_uncached(execution, step, cache)
            return None
        try:
            arguments = whole(step.signature, args, kwargs, ignore=step.ignore)
        except (
            NotSerializable
        ) as error:  # a default, which counts here: those that are given have a fingerprint
            LOGGER.warning("a call of %s is not cached: %s", step.name, error)
            return None
        if self._secret is None:
            self._secret = entries.secret_of(self._store)
        near = EXACT if cache.near == EXACT else WORDS
        question = cached_answer.make_question(step.name, near, cache.version, scope, arguments, self._secret)
        if question is None:
            return None
        frame.question = question
        try:
            kept = await asyncio.to_thread(entries.lookup, self._store, step.name, question)
        except StoreError as error:
            LOGGER.warning("the cache of %s could not be read, so the model is asked: %s", step.name, error)
            return None
        hit = self._hit(step, frame, cache, kept.answer, question)
        if hit is None and cache.meaning is not None:
            similar = await self._by_meaning().look_up(step, frame, cache, question, arguments, self._secret)
            hit = self._hit(step, frame, cache, similar, question, MEANING)
        if hit is not None:
            _note(execution, frame, hit, cache)
        return hit

    def _hit(
        self,
        step: Step,
        frame: Frame,
        cache: Cache,
        answer: CachedAnswer | None,
        question: CacheQuestion,
        kind: str | None = None,
    ) -> Hit | None:
        """Return an answer with its value, if it may be used and is what the step returns."""
        if answer is None or cached_answer.is_over(answer, cache.ttl_ms, self._store.now_ms()):
            return None
        try:
            value = step.codec.decode(bytes(answer.value), is_whole=True)
        except NineLivesError as error:
            LOGGER.info("a cached answer of %s is not used, it no longer fits: %s", step.name, error)
            if kind is None:
                frame.question = replace(question, replaces=True)
            return None
        return Hit(value, kind or cached_answer.kind_of_hit(answer, question), answer)

    def _say_uncached(self, execution: Running, step: Step, cache: Cache) -> None:
        """Say once for each step that a run without its labels is not cached: they may be forgotten."""
        if step not in self._said:
            self._said.add(step)
            lacks = ", ".join(sorted(set(cache.scope) - execution.run.labels.keys()))
            LOGGER.warning(
                "calls of %s in run %r are not cached: the run has no label %s, which its scope= names",
                step.name,
                execution.run.id,
                lacks,
            )

    def _by_meaning(self) -> MeaningCache:
        if self._meaning is None:
            # Lazily: no other process pays for the guards' lists of words.
            from ninelives.models.meaning_cache import MeaningCache

            self._meaning = MeaningCache(self._store)
        return self._meaning

    def recorded(self, execution: Running, step: Step, frame: Frame, cache: Cache) -> None:
        """Count a hit; keep another answer in the background."""
        how = frame.answered
        if how is None:
            return
        if how.cache:
            execution.done[_SLOTS[how.cache]] += 1
            usage = how.origin.usage if how.origin is not None else None
            execution.done[CACHE_TOKENS] += usage.tokens_in + usage.tokens_out if usage is not None else 0
            return
        execution.done[CACHE_MISS] += 1
        question, value = frame.question, frame.data
        if question is None or value is None or cached_answer.holds_secret(value):
            return
        answer = CachedAnswer(
            step=step.name,
            answer=question.answer,
            question=question.exact,
            value=Raw(value),
            digest="",
            run=execution.run.id,
            at=frame.position.id,
            at_ms=self._store.now_ms(),
            ttl_ms=cache.ttl_ms,
            preview=question.preview,
            near=cache.near_name,
            version=cache.version,
            scope=question.scope,
            by=how.by,
            usage=usage_in(value),
            taint=_read_by(frame),
        )
        self._keeper.do(lambda: self._keep(step, cache, question, answer))

    def _keep(self, step: Step, cache: Cache, question: CacheQuestion, answer: CachedAnswer) -> None:
        # CRASH: the answer is recorded and not kept: the next such call asks the model.
        entries.keep(self._store, step.name, question, answer, self._store.now_ms())
        if cache.meaning is not None:
            self._by_meaning().note(step, cache.meaning, question, bytes(answer.value), cache.ttl_ms)


def _note(execution: Running, frame: Frame, hit: Hit, cache: Cache) -> None:
    """Note on the frame where the answer comes from; it goes into the record of the outcome."""
    answer = hit.answer
    arguments = answer.preview if hit.kind != EXACT else ""
    name = answer.answer[: cached_answer.SHORT]
    origin = CachedFrom(answer.run, answer.at, answer.at_ms, name, arguments, answer.usage)
    before = frame.answered or Answered(ways=0)  # attempts before this one may have sent requests
    frame.answered = replace(before, by=answer.by, cache=hit.kind, origin=origin)
    if not before.ways:
        # Nothing is presumed to be spent. After a failed attempt it is: that one may have been billed.
        frame.charge(TOKENS, 0)
        frame.charge(USD, 0)
    labels = set(answer.taint)
    if hit.kind != EXACT:
        labels.update(used_answers.labels(name, execution.taint, leads=bool(cache.leads_to_effects)))
    if labels:
        frame.reads(TaintChange(tuple(labels)))


def _read_by(frame: Frame) -> tuple[str, ...]:
    return frame.taint.adds if frame.taint is not None else ()


class Keeper:
    """One thread that keeps answers. What the store refuses, or cannot take now, is not kept."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Do a piece of work soon; not if the store is so slow that too much waits."""
        if self._work.qsize() >= MOST_WAITING:
            LOGGER.warning("an answer was not kept in the cache: %d others wait to be", MOST_WAITING)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._always, name="ninelives-cache", daemon=True)
            self._thread.start()
        self._work.put(work)

    def close(self) -> None:
        """Finish what is under way, and stop."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()

    def _always(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 (whatever it is: the answer is not kept)
                LOGGER.warning("an answer was not kept in the cache: %s", error)
