"""How fast a store grows: its size now and then, kept in the document `status/sizes`.

`ninelives status` notes the size, at most once an hour, if it may write. If we die there: one sample less.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from ninelives.core.errors import NineLivesError
from ninelives.views import documents

if TYPE_CHECKING:
    from ninelives.stores.open import AnyStore

NAME = "status/sizes"
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_SAMPLES = 72


def growth_per_day(store: AnyStore, now_ms: int, used: int) -> int | None:
    """Return by how many bytes the store grows in a day; None until an hour has been seen."""
    _, samples = _read(store)
    older = [(at_ms, size) for at_ms, size in samples if now_ms - at_ms >= _HOUR_MS]
    if not older:
        return None
    at_ms, size = older[0]
    return (used - size) * _DAY_MS // (now_ms - at_ms)


def note_size(store: AnyStore, now_ms: int, used: int) -> None:
    """Keep the size, if none was kept in the last hour; another process may do so first."""
    with suppress(NineLivesError):
        version, samples = _read(store)
        if not samples or now_ms - samples[-1][0] >= _HOUR_MS:
            kept = [*samples, (now_ms, used)][-_SAMPLES:]
            store.write_document(NAME, msgspec.json.encode(kept), version=version)


def _read(store: AnyStore) -> tuple[int, list[tuple[int, int]]]:
    samples, version = documents.read(store, NAME, list[tuple[int, int]])
    return version, samples or []
