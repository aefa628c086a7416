"""What the dead leave behind: coroutines that never end, of which Python would complain when it finds them.

Their `finally` blocks run when they are collected. By then their machine is torn down, so they reach nothing;
but what counts the runtimes and workers of a real process must not hear of them.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ninelives.engine import context
from ninelives.engine.worker import gc_tuning
from tests.simulation import seams
from tests.simulation.machine import Machine

_SEEDS_PER_COLLECTION = 16


class _Seeds:
    """How many seeds have left something since the last collection, and how many of us are at it."""

    depth = 0
    left = 0


def _collect() -> None:
    """Collect on a machine where nothing can begin."""
    grave = Machine(0)
    grave.tear_down()
    with seams.on(grave, 0):
        gc.collect()


@contextmanager
def quiet() -> Iterator[None]:
    """Collect the remains of seeds only where nobody hears of it: every few seeds, and at the end."""
    if _Seeds.depth:
        yield
        _Seeds.left += 1
        if _Seeds.left % _SEEDS_PER_COLLECTION == 0:
            _collect()
        return
    was_enabled, hook = gc.isenabled(), sys.unraisablehook
    gc.disable()
    sys.unraisablehook = lambda _: None
    _Seeds.depth = 1
    try:
        with (
            warnings.catch_warnings(),
            patch.object(context, "_runtimes", 0),
            patch.object(gc_tuning, "_workers", 1),
        ):
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
            _collect()
    finally:
        _Seeds.depth = 0
        sys.unraisablehook = hook
        if was_enabled:
            gc.enable()
