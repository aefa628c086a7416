"""Embedders: what they ask of their packages, and what they say if one is missing."""

from __future__ import annotations

import asyncio
import threading
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from ninelives.core.errors import UsageError
from ninelives.models import embedders

TEXTS = ["one", "three"]


class LoadedModel:
    """What both packages' models have, and where it was called."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def encode(self, texts: list[str], *, show_progress_bar: bool) -> list[list[float]]:
        assert not show_progress_bar
        return self._vectors(texts)

    def embed(self, texts: list[str]) -> Any:
        return iter(self._vectors(texts))

    def _vectors(self, texts: list[str]) -> list[list[float]]:
        self.threads.append(threading.get_ident())
        return [[float(len(text))] for text in texts]


@pytest.mark.parametrize("embedder", [embedders.sentence_transformers, embedders.fastembed])
def test_a_local_model_is_called_in_a_thread(embedder: Any) -> None:
    model = LoadedModel()
    assert asyncio.run(embedder(model)(TEXTS)) == [[3.0], [5.0]]
    assert threading.get_ident() not in model.threads


def test_a_service_is_asked_once_and_its_answers_are_put_in_order() -> None:
    asked: list[dict[str, Any]] = []

    async def create(**given: Any) -> Any:
        asked.append(given)
        found = [
            SimpleNamespace(index=at, embedding=[float(len(text))]) for at, text in enumerate(given["input"])
        ]
        return SimpleNamespace(data=found[::-1])

    client = SimpleNamespace(embeddings=SimpleNamespace(create=create))
    embed = embedders.openai("small", client=client, dimensions=256)
    assert asyncio.run(_awaited(embed(TEXTS))) == [[3.0], [5.0]]
    assert asked == [{"model": "small", "input": TEXTS, "dimensions": 256}]


async def _awaited(coming: Any) -> Any:
    return await coming


@pytest.mark.parametrize(
    ("embedder", "module"),
    [
        (embedders.sentence_transformers, "sentence_transformers"),
        (embedders.fastembed, "fastembed"),
        (embedders.openai, "openai"),
    ],
)
def test_a_missing_package_is_named_when_it_is_needed(embedder: Any, module: str) -> None:
    if find_spec(module) is not None:
        pytest.skip(f"{module} is installed")
    with pytest.raises(UsageError, match="pip install"):
        asyncio.run(_awaited(embedder()(TEXTS)))


@pytest.mark.skipif(find_spec("wordllama") is None, reason="no wordllama")
def test_a_real_model_puts_like_questions_together() -> None:
    one, like, other = embedders.wordllama()(["reset my password", "change my password", "weather in Paris"])
    assert _product(one, like) > 0.5 > _product(one, other)


def _product(one: Any, other: Any) -> float:
    return sum(float(a) * float(b) for a, b in zip(one, other, strict=True))
