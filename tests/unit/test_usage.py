"""Tokens and models, as the usual clients report them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ninelives.core.values.token_usage import Usage, usage_in

OPENAI = {
    "model": "gpt-5",
    "usage": {
        "prompt_tokens": 30,
        "completion_tokens": 4,
        "total_tokens": 34,
        "prompt_tokens_details": {"cached_tokens": 20, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2},
    },
}
RESPONSES = {
    "model": "gpt-5",
    "usage": {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 20}, "output_tokens": 4},
}
ANTHROPIC = {
    "model": "claude-sonnet-4-5",
    "usage": {
        "input_tokens": 3,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 7,
        "output_tokens": 4,
    },
}
GOOGLE = {
    "model_version": "gemini-2.5-pro",
    "usage_metadata": {
        "prompt_token_count": 30,
        "cached_content_token_count": 20,
        "candidates_token_count": 3,
        "thoughts_token_count": 1,
        "total_token_count": 34,
    },
}
GOOGLE_JSON = {
    "modelVersion": "gemini-2.5-pro",
    "usageMetadata": {"promptTokenCount": 30, "candidatesTokenCount": 4, "totalTokenCount": 34},
}
PYDANTIC_AI = {
    "parts": [{"content": "no", "part_kind": "text"}],
    "model_name": "gpt-5",
    "usage": {"input_tokens": 30, "cache_read_tokens": 20, "output_tokens": 4, "details": {}},
}


@pytest.mark.parametrize(
    ("value", "usage"),
    [
        (OPENAI, Usage(30, 4, "gpt-5", cached=20)),
        (RESPONSES, Usage(30, 4, "gpt-5", cached=20)),
        (ANTHROPIC, Usage(30, 4, "claude-sonnet-4-5", cached=20, cache_written=7)),
        (GOOGLE, Usage(30, 4, "gemini-2.5-pro", cached=20)),
        (GOOGLE_JSON, Usage(30, 4, "gemini-2.5-pro")),
        (PYDANTIC_AI, Usage(30, 4, "gpt-5", cached=20)),
        ({"usage": {"request_tokens": 3, "response_tokens": 4}, "model_name": "m"}, Usage(3, 4, "m")),
        ({"model": "emb", "usage": {"prompt_tokens": 8, "total_tokens": 8}}, Usage(8, 0, "emb")),
        ([OPENAI, OPENAI], Usage(60, 8, "gpt-5", cached=40)),
        ([OPENAI, ANTHROPIC], Usage(60, 8, "", cached=40, cache_written=7)),
        ({"answer": {"text": "no", "raw": OPENAI}}, Usage(30, 4, "gpt-5", cached=20)),
    ],
)
def test_usage_is_found_in_each_usual_form(value: Any, usage: Usage) -> None:
    assert usage_in(json.dumps(value).encode()) == usage


@pytest.mark.parametrize(
    "value",
    [
        b'{"input_tokens": 3}',
        b'{"usage": {"prompt_tokens": 3, "completion_tokens": "many"}}',
        b'{"usage": {"prompt_tokens": true, "completion_tokens": true}}',
        b'{"usage": {"prompt_tokens": -3, "completion_tokens": -4}}',
        b'{"usage": {"prompt_tokens": 0, "completion_tokens": 0}}',
        b'"the word _tokens"',
        b'{"_tokens',
        b"null",
    ],
)
def test_what_reports_no_usage_has_none(value: bytes) -> None:
    assert usage_in(value) is None
