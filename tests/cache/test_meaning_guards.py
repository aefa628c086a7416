"""Guards against the traps, and what they let through; each of them can be seen to be needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninelives.core.model_calls.meaning import guards
from ninelives.core.model_calls.meaning.guards import veto
from ninelives.core.model_calls.normal_form import normal_form

LISTS = Path(__file__).parent
LET_THROUGH = {
    "traps_seen": set[str](),
    "traps_unseen": {"Please, how do I please him?", "Thanks, what is next?"},
    "traps_meaning_seen": {
        "Can a tenant sue the landlord over the deposit?",
        "Who pays the shipping when I return an item?",
        "How do I turn notifications back on?",
        "How do I make the font bigger in the editor?",
        "How can a buyer contact the seller?",
        "Is a manager allowed to fire an employee by mail?",
    },
    # Written when the guards were done. What passes here is not repaired, so that the share stays honest.
    "traps_meaning_unseen": {"What do cats think of dogs?", "Which vaccine do I need before going to Kenya?"},
}
"""First questions of the traps that only the bound can stop."""


def pairs(name: str) -> list[tuple[str, str]]:
    return [(one, other) for one, other in json.loads((LISTS / f"{name}.json").read_text(encoding="utf-8"))]


@pytest.mark.parametrize("name", LET_THROUGH)
def test_the_guards_stop_all_traps_but_these(name: str) -> None:
    """Where a normal form is equal there is nothing to veto: those are another list's business."""
    passed = {one for one, other in pairs(name) if veto(one, other) is None}
    assert passed == LET_THROUGH[name]
    assert {one for one, other in pairs(name) if veto(other, one) is None} == passed


def test_there_are_hundreds_of_traps() -> None:
    assert sum(len(pairs(name)) for name in LET_THROUGH) > 300


def test_the_guards_leave_paraphrases() -> None:
    """Less than half, for these: the guards are for what must not be wrong. The share may only grow."""
    assert sum(veto(*pair) is None for pair in pairs("paraphrases")) >= 9


@pytest.mark.parametrize(
    ("guard", "one", "other"),
    [
        ("numbers",
         "Is there still a table for 4 at the Riverside this evening?",
         "This evening, has the Riverside a table left for 6?"),
        ("symbols",
         "What are all of the steps for adding A + B here?",
         "Which steps lead to the sum A - B in this place?"),
        ("names",
         "Which river flows through the middle of Vienna?",
         "What river has Berlin at its banks?"),
        ("negation",
         "Which guests did confirm that they come?",
         "Who of the guests did not say that they come?"),
        ("opposites",
         "What happens to my files when I enable sync?",
         "If sync gets disabled, where do the files go?"),
        ("question",
         "Why does the boiler make such noise?",
         "When is the boiler loud like that?"),
        ("persons",
         "May I read what my doctor wrote?",
         "Can they see the notes of their doctor?"),
        ("tense",
         "Is the mayor in favour of the bridge?",
         "Did the mayor support that bridge?"),
        ("counting words",
         "Report the sales of Monday please",
         "How were sales on Tuesday?"),
        ("roles",
         "Please merge the branch main into dev",
         "Can dev be merged into main, as a branch?"),
        ("another word",
         "What is the capital of the state of Kansas?",
         "What would the flower of the state of Kansas be?"),
        ("wording",
         "Do few users like the new page?",
         "Do a few users like the new page?"),
    ],
)  # fmt: skip
def test_each_guard_sees_what_no_other_one_does(
    guard: str, one: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert veto(one, other) is not None
    left = tuple(each for each in guards._GUARDS if each[0] == guard)
    monkeypatch.setattr(guards, "_GUARDS", left)
    assert veto(one, other) == guard


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_veto_is_the_same_both_ways_and_none_for_one_question(one: str, other: str) -> None:
    assert veto(one, one) is None
    assert (veto(one, other) is None) == (veto(other, one) is None)


@given(st.from_regex(r"[a-z]{3,8}( [a-z]{3,8}){3,6} [0-9]{1,4}", fullmatch=True), st.integers(0, 9999))
def test_another_number_is_never_let_through(text: str, number: int) -> None:
    words, _, last = text.rpartition(" ")
    if int(last) != number:
        assert veto(text, f"{words} {number}") is not None
        assert normal_form(text) != normal_form(f"{words} {number}")
