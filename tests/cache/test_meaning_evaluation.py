"""The evaluation in small, and that it would notice: guards without digits, a bound ignored, no exploration.

The long form is `python -m benchmarks.meaning`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from importlib.util import find_spec

import pytest
from benchmarks.meaning.corpus import SEEN, UNSEEN, Asked, intents, pairs, stream
from benchmarks.meaning.evaluate import bare, upper, verified
from msgspec.structs import replace

from ninelives.core.model_calls.meaning import choice as choosing
from ninelives.core.model_calls.meaning import guards
from ninelives.core.model_calls.meaning.choice import Meaning, MeaningChoice, Near, choose
from ninelives.core.model_calls.meaning.record import BANDS, Comparison, Comparisons
from ninelives.models import embedders

RULE = Meaning(lambda texts: [[1.0] for _ in texts], max_error=0.05)
Vector = tuple[float, ...]


def world(calls: int, false_share: float, seed: int) -> tuple[list[Asked], list[Vector]]:
    """Questions near to 40 others; this share of them, hidden anywhere, asks for something else."""
    draws, asked, vectors = random.Random(seed), list[Asked](), list[Vector]()
    for at in range(calls):
        about = draws.randrange(40)
        turn = draws.uniform(-0.45, 0.45)
        is_false = draws.random() < false_share
        asked.append(Asked(_words(at), f"false {at}" if is_false else f"about {about}"))
        here = [0.0] * 80
        here[about], here[40 + about] = math.cos(turn), math.sin(turn)
        vectors.append(tuple(here))
    return asked, vectors


def _words(number: int) -> str:
    """Return a text that no guard takes for another one of these."""
    letters = [chr(97 + number // 26**place % 26) for place in range(3)]
    return " ".join(f"{letter * 3}{where}" for letter, where in zip(letters, ("qa", "qe", "qi"), strict=True))


def faults(max_error: float, false_share: float) -> list[str]:
    """Play the world; return what does not hold."""
    asked, vectors = world(4_000, false_share, seed=1)
    played = verified(asked, vectors, replace(RULE, max_error=max_error, guards=False))
    found = []
    if played.hits >= 100 and played.wrong / played.hits > max_error:
        found.append(f"{played.wrong} of {played.hits} served answers are wrong")
    if false_share == 0 and played.hits < 1_000:
        found.append(f"only {played.hits} calls were served")
    return found


def served_after_a_change() -> int:
    """Return how many wrong answers are served after all answers have changed."""
    record, draws, served = Comparisons(), random.Random(9), 0
    for at in range(2_000):
        record.note(Comparison(f"e{at}", 0.95, 1, True))
    for at in range(4_000):
        made = choosing.choose(
            RULE, "aaa bbb ccc", [Near(f"n{at}", "ddd eee fff", 0.95)], record, draws.random()
        )
        served += made.serve
        if not made.serve:
            record.note(made.compared(right=False))
    return served


def proven() -> Comparisons:
    """Return what many comparisons have shown, all of them right."""
    record = Comparisons()
    for band in range(len(BANDS)):
        for at in range(900):
            record.note(Comparison(f"e{band}-{at}", 0.95, band, True))
    return record


def traps_served(similarity: float = 0.985) -> list[str]:
    """Return the traps of digits that are served once everything is proven."""
    record = proven()
    return [
        one
        for one, other in pairs(*SEEN, *UNSEEN)
        if choosing.choose(RULE, other, [Near("first", one, similarity)], record, 0.5).serve
        and _digits(one) != _digits(other)
    ]


def _digits(text: str) -> list[str]:
    return [one for one in text if one.isdigit() and one.isascii()]


def test_what_is_served_keeps_to_the_bound() -> None:
    assert faults(0.05, false_share=0.0) == []
    assert faults(0.05, false_share=0.02) == []
    assert faults(0.05, false_share=0.15) == []
    assert faults(0.01, false_share=0.03) == []


def test_no_trap_of_digits_is_served_and_a_change_is_noticed() -> None:
    assert traps_served() == []
    assert 0 < served_after_a_change() < 300


def _ignores(*what: str) -> Callable[..., MeaningChoice]:
    def planted(
        rule: Meaning, text: str, nearest: list[Near], record: Comparisons, draw: float
    ) -> MeaningChoice:
        made = choose(rule, text, nearest, record, draw)
        return replace(made, serve=True) if made.why in what else made

    return planted


def test_a_planted_bug_that_ignores_the_bound_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.meaning.evaluate.choose", _ignores("shadow"))
    assert "are wrong" in "".join(faults(0.05, false_share=0.15))


def test_a_planted_bug_that_drops_the_exploration_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "choose", _ignores("explore"))
    assert served_after_a_change() == 4_000


def test_a_planted_bug_that_drops_the_guard_of_digits_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def folded(read: Callable[[str], guards.Read]) -> Callable[[str], guards.Read]:
        return lambda text: read("".join("7" if one.isdigit() else one for one in text))

    monkeypatch.setattr(guards, "read", folded(guards.read))
    assert len(traps_served()) > 10


@pytest.mark.skipif(find_spec("wordllama") is None, reason="no wordllama")
def test_a_real_model_routes_questions_of_people_within_the_bound() -> None:
    """2,160 questions of 30 intents, from an empty cache: the stated bound is 15 %."""
    order = stream(intents(), [], seed=3)
    embed = embedders.wordllama()
    played = verified(order, embed([one.text for one in order]), Meaning(embed, max_error=0.15, guards=False))
    assert played.hits >= 300
    assert upper(played.wrong, played.hits) <= 0.15


@pytest.mark.skipif(find_spec("wordllama") is None, reason="no wordllama")
def test_of_all_traps_the_guards_leave_few_even_if_everything_else_is_proven() -> None:
    order = stream([], pairs(*SEEN, *UNSEEN), seed=3)
    embed = embedders.wordllama()
    vectors = embed([one.text for one in order])
    assert verified(order, vectors, Meaning(embed, max_error=0.1), record=proven()).trapped <= 12
    assert bare(order, vectors, 0.9).trapped > 100
