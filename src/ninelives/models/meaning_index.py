"""The nearest cached questions, by brute force: exact, in memory, nothing to tune.

With numpy, if it is installed, a hundred thousand vectors take some 10 ms; without, a thousand take as long.
Vectors are brought to length 1 when they are added, so that a product is a cosine.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Sequence
from heapq import nlargest
from importlib.util import find_spec
from operator import mul
from typing import Any

from ninelives.core.errors import UsageError
from ninelives.core.model_calls.meaning.choice import NEAREST, Near


class MeaningIndex:
    """Cached questions with their vectors. Not for several threads at a time.

    Vectors of another width come from another model: each width has rows of its own.
    """

    def __init__(self, *, numpy: bool | None = None) -> None:
        self._numpy = find_spec("numpy") is not None if numpy is None else numpy
        self._widths: dict[int, _Rows] = {}
        self._width_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._width_of)

    def __contains__(self, entry: str) -> bool:
        return entry in self._width_of

    def add(self, entry: str, text: str, vector: Sequence[float]) -> None:
        """Add a cached question, or replace it. Raises UsageError if the vector is none."""
        unit = _unit(vector)
        self.remove(entry)
        self._width_of[entry] = len(unit)
        self._widths.setdefault(len(unit), _Rows(len(unit), numpy=self._numpy)).add(entry, text, unit)

    def remove(self, entry: str) -> None:
        """Remove a cached question."""
        width = self._width_of.pop(entry, None)
        if width is not None:
            self._widths[width].remove(entry)

    def nearest(self, vector: Sequence[float], most: int = NEAREST) -> list[Near]:
        """Return the nearest cached questions, the nearest first. Raises UsageError if the vector is none."""
        unit = _unit(vector)
        rows = self._widths.get(len(unit))
        return rows.nearest(unit, most) if rows is not None else []


class _Rows:
    """The vectors of one width, one after the other."""

    def __init__(self, width: int, *, numpy: bool) -> None:
        self._width, self._numpy = width, numpy
        self._rows: dict[str, int] = {}
        self._entries: list[str] = []
        self._texts: list[str] = []
        self._vectors = array("f")

    def add(self, entry: str, text: str, unit: array[float]) -> None:
        """Add a row that is not there."""
        self._rows[entry] = len(self._entries)
        self._entries.append(entry)
        self._texts.append(text)
        self._vectors.extend(unit)

    def remove(self, entry: str) -> None:
        """Remove a row; the last one takes its place."""
        row = self._rows.pop(entry)
        width, last = self._width, len(self._entries) - 1
        if row != last:
            self._entries[row], self._texts[row] = self._entries[last], self._texts[last]
            self._vectors[row * width : (row + 1) * width] = self._vectors[last * width :]
            self._rows[self._entries[row]] = row
        del self._entries[last], self._texts[last], self._vectors[last * width :]

    def nearest(self, unit: array[float], most: int) -> list[Near]:
        """Return the nearest rows, the nearest first; of equally near ones, the older."""
        if not self._entries:
            return []
        cosines = self._cosines(unit)
        found = nlargest(most, ((cosine, -row) for row, cosine in cosines))
        return [
            Near(self._entries[-row], self._texts[-row], min(1.0, float(cosine))) for cosine, row in found
        ]

    def _cosines(self, unit: array[float]) -> Iterable[tuple[int, float]]:
        if self._numpy:
            return _fast(self._vectors, unit)
        width = self._width
        return (
            (row, sum(map(mul, unit, self._vectors[row * width : (row + 1) * width])))
            for row in range(len(self._entries))
        )


def packed(vector: Sequence[float]) -> bytes:
    """Return a vector as little-endian 32-bit floats, brought to length 1. Raises UsageError."""
    return _little(_unit(vector)).tobytes()


def unpacked(vector: bytes) -> array[float]:
    """Return a vector that `packed` has made. Raises ValueError."""
    found = array("f")
    found.frombytes(vector)
    return _little(found)


def _little(vector: array[float]) -> array[float]:
    if sys.byteorder == "big":
        vector.byteswap()
    return vector


def _unit(vector: Sequence[float]) -> array[float]:
    plain = [float(one) for one in vector]
    length = math.sqrt(sum(map(mul, plain, plain)))
    if not plain or not math.isfinite(length):
        raise UsageError(
            f"embed gave a vector of {len(plain)} numbers and length {length}",
            remedy="Let embed return one vector of finite numbers for each text",
        )
    return array("f", (one / length for one in plain) if length else plain)


def _fast(vectors: array[float], unit: array[float]) -> list[tuple[int, float]]:
    np: Any = __import__("numpy")
    cosines = np.frombuffer(vectors, dtype=np.float32).reshape(-1, len(unit)) @ np.frombuffer(
        unit, np.float32
    )
    most = min(len(cosines), 4 * NEAREST)
    rows = np.argpartition(-cosines, most - 1)[:most]
    return [(int(row), float(cosines[row])) for row in rows]
