"""When a cached answer is served by meaning, compared, or passed over."""

from __future__ import annotations

import random

import pytest

import ninelives as nl
from ninelives.core.errors import UsageError
from ninelives.core.model_calls.meaning.choice import Meaning, MeaningChoice, Near, choose
from ninelives.core.model_calls.meaning.record import (
    BANDS,
    DOUBT,
    LATELY,
    OWN_AT_MOST,
    WINDOW,
    Comparison,
    Comparisons,
    band_of,
)

RULE = Meaning(lambda texts: [[1.0] for _ in texts], max_error=0.01, explore=0.05)
ASKED = "I forgot my password, what should I do?"
CACHED = "How do I reset a lost password?"
NOT_EXPLORED = 0.99


def proven(band: int, right: int = 800, wrong: int = 0) -> Comparisons:
    """What many comparisons of other questions have shown of a band."""
    record = Comparisons()
    for at in range(right + wrong):
        record.note(Comparison(f"other-{at}", 0.9, band, at >= wrong))
    return record


def known(record: Comparisons, band: int) -> tuple[int, int, float]:
    bound = record.bound(band)
    return bound.compared, bound.wrong, bound.at_most


def near(similarity: float = 0.95, text: str = CACHED, entry: str = "one") -> Near:
    return Near(entry, text, similarity)


def test_meaning_is_part_of_the_api() -> None:
    assert nl.Meaning is Meaning


def test_it_begins_in_the_shadow() -> None:
    choice = choose(RULE, ASKED, [near()], Comparisons(), NOT_EXPLORED)
    assert (choice.serve, choice.entry, choice.why, choice.at_most) == (False, "one", "shadow", 1.0)


def test_it_serves_once_the_bound_permits_it() -> None:
    band = band_of(Comparisons().risk("one", 0.95))
    assert choose(RULE, ASKED, [near()], proven(band), NOT_EXPLORED).serve
    assert choose(RULE, ASKED, [near()], proven(band), NOT_EXPLORED).at_most <= RULE.max_error
    few = choose(RULE, ASKED, [near()], proven(band, right=300), NOT_EXPLORED)
    assert (few.serve, few.why) == (False, "shadow")
    errs = choose(RULE, ASKED, [near()], proven(band, wrong=8), NOT_EXPLORED)
    assert (errs.serve, errs.why) == (False, "shadow")


def test_what_one_band_has_shown_permits_nothing_in_another() -> None:
    band = band_of(Comparisons().risk("one", 0.95))
    assert not choose(RULE, ASKED, [near()], proven(band - 1), NOT_EXPLORED).serve
    assert not choose(RULE, ASKED, [near()], proven(band + 1), NOT_EXPLORED).serve


def test_a_share_of_what_may_be_served_is_asked_and_compared() -> None:
    band = band_of(Comparisons().risk("one", 0.95))
    record, draws = proven(band), random.Random(5)
    chosen = [choose(RULE, ASKED, [near()], record, draws.random()) for _ in range(4_000)]
    asked = [one for one in chosen if not one.serve]
    assert 0.03 < len(asked) / len(chosen) < 0.07
    assert {one.why for one in asked} == {"explore"}
    assert {one.entry for one in asked} == {"one"}


def test_a_cache_whose_answers_go_wrong_goes_back_into_the_shadow() -> None:
    """All answers of a proven band turn wrong, each for another question: few are served until it is seen."""
    band = band_of(Comparisons().risk("one", 0.95))
    record, draws, served = proven(band), random.Random(7), 0
    for at in range(3_000):
        choice = choose(RULE, ASKED, [near(entry=f"changed-{at}")], record, draws.random())
        served += choice.serve
        if not choice.serve:
            record.note(choice.compared(right=False))
    assert served < 100
    assert not choose(RULE, ASKED, [near()], record, NOT_EXPLORED).serve


def test_a_guard_refuses_whatever_has_been_proven() -> None:
    choice = choose(RULE, "refund order 13", [near(0.99, "refund order 12")], proven(0), NOT_EXPLORED)
    assert (choice.serve, choice.entry, choice.why) == (False, None, "guard: numbers")


def test_a_guard_leaves_the_next_nearest() -> None:
    entries = [near(0.99, "I forgot my password 12, what should I do?", "guarded"), near(0.95)]
    assert choose(RULE, ASKED, entries, Comparisons(), NOT_EXPLORED).entry == "one"


def test_what_is_not_near_is_not_compared() -> None:
    choice = choose(RULE, ASKED, [near(0.5)], Comparisons(), NOT_EXPLORED)
    assert (choice.serve, choice.entry, choice.why) == (False, None, "none")


def test_a_question_that_was_wrong_is_riskier_and_one_that_was_right_is_less_so() -> None:
    record = Comparisons()
    fresh = record.risk("one", 0.9)
    for _ in range(5):
        record.note(Comparison("right", 0.85, -1, True))
        record.note(Comparison("wrong", 0.95, -1, False))
    assert record.risk("right", 0.9) < fresh / 3
    assert record.risk("wrong", 0.9) > 0.8
    assert choose(RULE, ASKED, [near(0.9, entry="wrong")], record, NOT_EXPLORED).why == "risk"


def test_a_wrong_one_far_away_says_little_of_what_is_near() -> None:
    record = Comparisons()
    record.note(Comparison("one", 0.7, -1, False))
    assert record.risk("one", 0.98) < 0.05 < record.risk("one", 0.7)


def test_a_forgotten_question_begins_again_and_the_bands_keep_their_sums() -> None:
    record = Comparisons()
    for _ in range(OWN_AT_MOST + 5):
        record.note(Comparison("one", 0.9, 1, False))
    record.forget("one")
    assert record.risk("one", 0.9) == pytest.approx(0.1)
    assert record.bound(1).wrong == OWN_AT_MOST + 5


def test_only_the_newest_comparisons_count() -> None:
    record = proven(1, right=0, wrong=100)
    for at in range(WINDOW):
        record.note(Comparison(f"new-{at}", 0.9, 1, True))
    bound = record.bound(1)
    assert (bound.compared, bound.wrong, bound.up_to) == (WINDOW, 0, BANDS[1])
    assert len(record) == WINDOW


def test_the_order_in_which_comparisons_arrive_changes_nothing() -> None:
    notes = [Comparison(f"e{at % 7}", 0.6 + at % 40 / 100, at % 4, at % 9 > 0) for at in range(300)]
    one, other = Comparisons(), Comparisons()
    for note in notes:
        one.note(note)
    random.Random(3).shuffle(notes)
    for note in notes:
        other.note(note)
    assert [known(one, band) for band in range(4)] == [known(other, band) for band in range(4)]
    assert all(one.risk(f"e{at}", 0.8) == pytest.approx(other.risk(f"e{at}", 0.8)) for at in range(7))


def test_answers_that_have_become_worse_are_compared_again_at_once() -> None:
    record = proven(1, right=3_000)
    for at in range(8):
        assert record.bound(1).permits(0.05)
        record.note(Comparison(f"changed-{at}", 0.95, 1, False))
    assert record.bound(1).at_most < 0.05
    assert not record.bound(1).permits(0.05)
    for at in range(LATELY):
        record.note(Comparison(f"again-{at}", 0.95, 1, True))
    assert record.bound(1).permits(0.05)


def test_the_bands_share_the_doubt() -> None:
    assert Comparisons().bound(0).at_most == 1.0
    assert proven(0, right=400).bound(0).at_most > 0.01 > proven(0, right=700).bound(0).at_most
    assert DOUBT == 0.05


def test_a_comparison_says_what_was_known_before_it() -> None:
    choice = MeaningChoice(False, "one", 0.91234, 2, 0.1, 1.0, "shadow")
    assert choice.compared(right=True) == Comparison("one", 0.9123, 2, True)


@pytest.mark.parametrize(
    "given",
    [
        {"embed": "minilm"},
        {"max_error": 0},
        {"max_error": 0.6},
        {"max_error": True},
        {"explore": 0},
        {"at_least": 1.5},
        {"same": 3},
    ],
)
def test_a_meaning_that_cannot_be_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="Give"):
        Meaning(**{"embed": RULE.embed, **given})  # type: ignore[arg-type]
