"""Tokens, as the usual models tell them."""

from __future__ import annotations

import pytest

from ninelives.core.values.token_usage import tokens_in


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (b'{"usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}', 7),
        (b'{"usage": {"input_tokens": 3, "output_tokens": 4}}', 7),
        (b'[{"usage": {"total_tokens": 1}}, {"usage": {"total_tokens": 2}}]', 3),
        (b'{"input_tokens": 3}', 0),
        (b'{"total_tokens": "many"}', 0),
        (b'"the word _tokens"', 0),
        (b'{"_tokens', 0),
        (b"null", 0),
    ],
)
def test_tokens_are_found_in_whichever_form_they_come(value: bytes, tokens: int) -> None:
    assert tokens_in(value) == tokens
