"""Token usage and model name, as found in a model's answer in any of the usual forms.

Known forms, by the names of their fields: OpenAI (chat and responses) and all that imitate it, LiteLLM too;
Anthropic; Google's `usage_metadata`, as Python and as JSON; Pydantic AI. `tokens_in` always counts the whole
prompt: Anthropic reports what came from its prompt cache apart, the others within.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

_DEPTH = 4
_MARKS = (b"_token", b"TokenCount")
_MODEL_CHARACTERS = 100
_LIMIT = 2**53

# For each form: the prompt, what comes on top of it, the answer, what comes on top of that.
_FORMS = (
    (("prompt_tokens",), (), ("completion_tokens",), ()),
    (
        ("input_tokens",),
        ("cache_read_input_tokens", "cache_creation_input_tokens"),
        ("output_tokens",),
        (),
    ),
    (("prompt_token_count",), (), ("candidates_token_count",), ("thoughts_token_count",)),
    (("promptTokenCount",), (), ("candidatesTokenCount",), ("thoughtsTokenCount",)),
    (("request_tokens",), (), ("response_tokens",), ()),
)
_CACHED = (
    "cache_read_input_tokens",
    "cache_read_tokens",
    "cached_tokens",
    "cached_content_token_count",
    "cachedContentTokenCount",
)
_CACHE_WRITTEN = ("cache_creation_input_tokens", "cache_write_tokens")
_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_MODELS = ("model", "model_name", "model_version", "modelVersion")


class Usage(Struct, frozen=True, omit_defaults=True):
    """The cost that an answer reports: tokens read and written, and the model.

    `cached` of the tokens read came from the provider's prompt cache, and `cache_written` went into it: these
    have prices of their own. `usd` are micro-dollars that the step's body has charged itself.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    model: str = ""
    cached: int = 0
    cache_written: int = 0
    usd: int | None = None

    @property
    def tokens(self) -> int:
        """All tokens, read and written."""
        return self.tokens_in + self.tokens_out

    @property
    def is_countable(self) -> bool:
        """Whether it is as `usage_in` finds it: no number below 0, or so large that sums of it overflow."""
        counts = (self.tokens_in, self.tokens_out, self.cached, self.cache_written, self.usd or 0)
        return all(0 <= one < _LIMIT for one in counts)


def usage_in(value: bytes) -> Usage | None:
    """Return the usage that an encoded value reports; None when it reports none.

    Several answers in one value are added up; then the model is named only if it is the same.
    """
    if not any(mark in value for mark in _MARKS):
        return None
    try:
        tree = msgspec.json.decode(value)
    except msgspec.DecodeError:
        return None
    return total(_found(tree, _DEPTH, ""))


def total(found: list[Usage]) -> Usage | None:
    """Return the sum of usages; None if it is nothing."""
    if len(found) == 1:
        return found[0] if found[0].tokens else None
    models = {one.model for one in found}
    summed = Usage(
        sum(one.tokens_in for one in found),
        sum(one.tokens_out for one in found),
        models.pop() if len(models) == 1 else "",
        sum(one.cached for one in found),
        sum(one.cache_written for one in found),
    )
    return summed if summed.tokens else None


def _found(value: Any, depth: int, model: str) -> list[Usage]:
    """Return the usages in a decoded value; `model` is the one that stands above it."""
    if isinstance(value, dict):
        model = next((name for key in _MODELS if isinstance(name := value.get(key), str) and name), model)
        own = _own(value, model)
        if own is not None:
            return [own]
        value = list(value.values())
    if not isinstance(value, list) or not depth:
        return []
    return [one for inner in value for one in _found(inner, depth - 1, model)]


def _own(value: dict[str, Any], model: str) -> Usage | None:
    """Return the usage that a table itself states."""
    for prompts, more_in, answers, more_out in _FORMS:
        read, written = _sum(value, prompts), _sum(value, answers)
        if read is None:
            continue
        if written is None:  # an embedding, or an answer that was stopped, has only a prompt
            whole = _sum(value, ("total_tokens", "total_token_count", "totalTokenCount"))
            if whole is None or whole < read:
                continue
            written = whole - read
        details = [one for key in _DETAILS if isinstance(one := value.get(key), dict)]
        cached = max((_sum(one, _CACHED) or 0 for one in (value, *details)), default=0)
        read += _sum(value, more_in) or 0
        written += _sum(value, more_out) or 0
        if read >= _LIMIT or written >= _LIMIT:
            continue
        kept = _sum(value, _CACHE_WRITTEN) or 0
        cached = min(cached, read)
        return Usage(read, written, model[:_MODEL_CHARACTERS], cached, min(kept, read - cached))
    return None


def _sum(value: dict[str, Any], names: tuple[str, ...]) -> int | None:
    """Return the sum of the counts that stand under these names; None if none does."""
    counts = [one for name in names if type(one := value.get(name)) is int and 0 <= one < _LIMIT]
    return sum(counts) if counts else None
