"""Embedders for `nl.Meaning`: callables from texts to vectors. Packages are imported when first used.

Models that run in this process are called in a thread, so that the event loop goes on; they are loaded once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ninelives.core.errors import UsageError

Vectors = Sequence[Sequence[float]]


def openai(
    model: str = "text-embedding-3-small", *, client: Any = None, dimensions: int | None = None
) -> Callable[[list[str]], Awaitable[Vectors]]:
    """Return an embedder by OpenAI's service; `client` is an `AsyncOpenAI`, also of a service like it."""
    held = _Once(lambda: client if client is not None else _module("openai", "openai").AsyncOpenAI())
    more = {} if dimensions is None else {"dimensions": dimensions}

    async def embed(texts: list[str]) -> Vectors:
        found = await held.get().embeddings.create(model=model, input=texts, **more)
        return [one.embedding for one in sorted(found.data, key=lambda one: one.index)]

    return embed


def sentence_transformers(model: Any = "all-MiniLM-L6-v2") -> Callable[[list[str]], Awaitable[Vectors]]:
    """Return an embedder by sentence-transformers: the name or folder of a model, or a loaded one."""

    def load() -> Any:
        if not isinstance(model, str | Path):
            return model
        return _module("sentence_transformers", "sentence-transformers").SentenceTransformer(str(model))

    return _threaded(load, lambda loaded, texts: loaded.encode(texts, show_progress_bar=False))


def fastembed(model: Any = "BAAI/bge-small-en-v1.5") -> Callable[[list[str]], Awaitable[Vectors]]:
    """Return an embedder by fastembed: the name of a model, or a loaded one."""

    def load() -> Any:
        return _module("fastembed", "fastembed").TextEmbedding(model) if isinstance(model, str) else model

    return _threaded(load, lambda loaded, texts: list(loaded.embed(texts)))


def wordllama() -> Callable[[list[str]], Vectors]:
    """Return an embedder by wordllama: small, fast, and its weights are in its package.

    It does not see the order of words. Fine for tests; a model of sentences finds more.
    """

    def load() -> Any:
        module = _module("wordllama", "wordllama")
        folder = Path(module.__file__).parent
        return module.WordLlama.load(cache_dir=folder, disable_download=True)

    held = _Once(load)

    def embed(texts: list[str]) -> Vectors:
        found: Vectors = held.get().embed(texts, norm=True)
        return found

    return embed


class _Once:
    """A thing that is made when it is first wanted, by one thread."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._lock, self._made = make, threading.Lock(), None

    def get(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made


def _threaded(
    load: Callable[[], Any], embed: Callable[[Any, list[str]], Any]
) -> Callable[[list[str]], Awaitable[Vectors]]:
    held = _Once(load)

    async def embedded(texts: list[str]) -> Vectors:
        found: Vectors = await asyncio.to_thread(lambda: embed(held.get(), texts))
        return found

    return embedded


def _module(name: str, package: str) -> Any:
    if find_spec(name) is None:
        raise UsageError(f"the package {package} is not installed", remedy=f"pip install {package}")
    return __import__(name)
