"""Which text of the arguments is the question, and what is left of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ninelives.core.model_calls.meaning.question import question_of

LONG = "How do I reset my password?"


@pytest.mark.parametrize(
    ("arguments", "of", "text"),
    [
        ({"text": LONG}, "", LONG),
        (
            {
                "messages": [
                    {"role": "system", "content": "You are a clerk."},
                    {"role": "user", "content": LONG},
                ]
            },
            "",
            LONG,
        ),
        ({"question": LONG, "style": "short and friendly, please"}, "question", LONG),
        ({"question": LONG, "lang": "en"}, "", LONG),
        ({"given": {"$": "record", "v": {"text": LONG, "day": {"$": "date", "v": "2026-01-02"}}}}, "", LONG),
    ],
)
def test_the_question_is_the_last_text_of_three_words(arguments: dict[str, Any], of: str, text: str) -> None:
    found = question_of(arguments, of)
    assert found is not None
    assert found[0] == text


@pytest.mark.parametrize(
    ("arguments", "of"),
    [
        ({"text": "reset it"}, ""),
        ({"number": 5}, ""),
        ([], ""),
        ({"text": LONG}, "other"),
        ({"raw": {"$": "bytes", "v": "a b c d"}}, ""),
    ],
)
def test_arguments_without_one_are_not_cached_by_meaning(arguments: Any, of: str) -> None:
    assert question_of(arguments, of) is None


def test_everything_else_has_to_be_equal() -> None:
    def rest(**arguments: Any) -> bytes:
        found = question_of(arguments)
        assert found is not None
        return msgspec.json.encode(found[1])

    assert rest(model="a", text=LONG) == rest(model="a", text="I forgot my password.")
    assert rest(model="a", text=LONG) != rest(model="b", text=LONG)
    assert rest(messages=["Be kind to them.", LONG]) != rest(messages=["Be rude to them.", LONG])
    assert rest(messages=["Be kind to them.", LONG]) != rest(messages=[LONG])
    assert rest(text=LONG) != rest(text=[LONG])
