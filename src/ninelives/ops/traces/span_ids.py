"""Ids of spans that every life of a run computes alike, so that one life can write another's span."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from opentelemetry.trace import SpanContext, TraceFlags


def trace_of(store: str, run: str) -> tuple[int, int]:
    """Return the trace id of a run and the span id of its root."""
    digest = sha256(f"{store}\0{run}".encode()).digest()
    return int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:24]) or 1


def life_of(store: str, run: str, epoch: int) -> int:
    """Return the span id of a life."""
    return int.from_bytes(sha256(f"{store}\0{run}\0{epoch}".encode()).digest()[:8]) or 1


def root_of(store: str, run: str) -> SpanContext:
    """Return the context of a run's root span, as a link needs it."""
    return SpanContext(*trace_of(store, run), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


class ChosenIds:
    """An SDK's generator of ids that can be given the next ones; all others it makes as before."""

    def __init__(self, other: Any) -> None:
        self._other, self._chosen = other, threading.local()

    @contextmanager
    def next(self, trace: int, span: int) -> Iterator[None]:
        """Give these ids to the span that this thread starts inside."""
        self._chosen.ids = trace, span
        try:
            yield
        finally:
            self._chosen.ids = None

    def generate_trace_id(self) -> int:
        """Return a trace id."""
        ids = getattr(self._chosen, "ids", None)
        return int(ids[0] if ids else self._other.generate_trace_id())

    def generate_span_id(self) -> int:
        """Return a span id."""
        ids = getattr(self._chosen, "ids", None)
        return int(ids[1] if ids else self._other.generate_span_id())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)
