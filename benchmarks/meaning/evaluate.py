"""Play a stream of questions through the cache by meaning, and through a bare threshold, and count.

A served answer is wrong if the question should have got another one. Nothing is asked of any model: what a
model would say is known.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.meaning.corpus import Asked
from ninelives.core.model_calls.meaning.choice import Meaning, choose
from ninelives.core.model_calls.meaning.record import BANDS, Comparisons, RiskBound
from ninelives.models.meaning_index import MeaningIndex

Vectors = Sequence[Sequence[float]]


class Played(NamedTuple):
    """What became of a stream: all calls, those served, the wrong ones of these, and those of traps."""

    calls: int
    hits: int
    wrong: int
    trapped: int
    why: dict[str, int]
    bounds: tuple[RiskBound, ...]

    @property
    def hit_rate(self) -> float:
        return self.hits / max(1, self.calls)

    @property
    def error(self) -> float:
        return self.wrong / max(1, self.hits)


def verified(
    asked: Sequence[Asked], vectors: Vectors, rule: Meaning, seed: int = 0, record: Comparisons | None = None
) -> Played:
    """Play through `nl.Meaning`, from an empty cache; `record` is what was compared before."""
    index, draws = MeaningIndex(), random.Random(seed)
    record = Comparisons() if record is None else record
    answers: dict[str, str] = {}
    why: Counter[str] = Counter()
    hits = wrong = trapped = 0
    for at, (one, vector) in enumerate(zip(asked, vectors, strict=True)):
        choice = choose(rule, one.text, index.nearest(vector), record, draws.random())
        why[choice.why.partition(":")[0]] += 1
        right = choice.entry is not None and answers[choice.entry] == one.answer
        if choice.serve:
            hits += 1
            wrong += not right
            trapped += one.is_trap and not right
            continue
        if choice.entry is not None:
            record.note(choice.compared(right))
        if not right:
            index.add(str(at), one.text, vector)
            answers[str(at)] = one.answer
    bounds = tuple(record.bound(band) for band in range(len(BANDS)))
    return Played(len(asked), hits, wrong, trapped, dict(why), bounds)


def bare(asked: Sequence[Asked], vectors: Vectors, at_least: float) -> Played:
    """Play through a threshold on the cosine and nothing else."""
    index = MeaningIndex()
    answers: dict[str, str] = {}
    hits = wrong = trapped = 0
    for at, (one, vector) in enumerate(zip(asked, vectors, strict=True)):
        near = index.nearest(vector, 1)
        if near and near[0].similarity >= at_least:
            hits += 1
            is_wrong = answers[near[0].entry] != one.answer
            wrong += is_wrong
            trapped += one.is_trap and is_wrong
        else:
            index.add(str(at), one.text, vector)
            answers[str(at)] = one.answer
    return Played(len(asked), hits, wrong, trapped, {}, ())


def upper(wrong: int, of: int, doubt: float = 0.05) -> float:
    """Return the exact one-sided 95 % bound on a rate, for what was counted once (Clopper and Pearson)."""
    if not of or wrong >= of:
        return 1.0
    low, high = wrong / of, 1.0
    for _ in range(50):
        rate = (low + high) / 2
        logs = [_log_binomial(of, k, rate) for k in range(wrong + 1)]
        most = max(logs)
        if most + math.log(sum(math.exp(one - most) for one in logs)) > math.log(doubt):
            low = rate
        else:
            high = rate
    return high


def _log_binomial(of: int, k: int, rate: float) -> float:
    ways = math.lgamma(of + 1) - math.lgamma(k + 1) - math.lgamma(of - k + 1)
    return ways + k * math.log(rate) + (of - k) * math.log1p(-rate)
