"""Encode values in this process, or decode each in a process that has done nothing else.

    python -m tests.unit.fresh_process encode|decode named|sample FILE

`decode` forks a child for each value after the imports alone, and says which did not come back equal.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ninelives.core.values.codec import codec_for
from tests.unit import named_types, sample_types

EXAMPLES = 3


def annotations_of(kind: str) -> list[Any]:
    """The annotations of all cases, in their order."""
    if kind == "named":
        return [annotation for annotation, _ in named_types.CASES.values()]
    return [annotation for annotation, _ in sample_types.TYPED for _ in range(EXAMPLES)]


def values_of(kind: str) -> list[Any]:
    """The values of all cases, in their order."""
    if kind == "named":
        return [value for _, value in named_types.CASES.values()]
    return [value for _, values in sample_types.TYPED for value in _examples(values)]


def _examples(values: st.SearchStrategy[Any]) -> list[Any]:
    found: list[Any] = []

    @settings(
        max_examples=4 * EXAMPLES,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(values)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return (found[::-1] + found * EXAMPLES)[:EXAMPLES]  # the first ones are the smallest


def decode_in_a_child(annotation: Any, data: bytes, pickled: bytes, name: str) -> bool:
    """Decode one value in a process that has not decoded or encoded any before."""
    child = os.fork()
    if child == 0:
        came_back = False
        try:
            decoded = codec_for(annotation).decode(data)
            value = pickle.loads(pickled)
            came_back = type(decoded) is type(value) and decoded == value
            if not came_back:
                print(f"{name}: {value!r} came back as {decoded!r}")
        except Exception as bad:
            print(f"{name}: {bad!r}")
        finally:
            sys.stdout.flush()
            os._exit(0 if came_back else 1)
    return os.waitpid(child, 0)[1] == 0


def main() -> int:
    """Do one half, and give the number of values that did not come back."""
    half, kind, file = sys.argv[1:]
    annotations = annotations_of(kind)
    if half == "encode":
        pairs = zip(annotations, values_of(kind), strict=True)
        rows = [(codec_for(annotation).encode(value), pickle.dumps(value)) for annotation, value in pairs]
        Path(file).write_bytes(pickle.dumps(rows))
        return 0
    rows = pickle.loads(Path(file).read_bytes())
    bad = 0
    for annotation, (data, pickled) in zip(annotations, rows, strict=True):
        bad += not decode_in_a_child(annotation, data, pickled, str(annotation))
    return min(bad, 100)


if __name__ == "__main__":
    sys.exit(main())
