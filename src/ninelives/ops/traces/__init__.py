"""Traces of runs with OpenTelemetry: one trace over all lives of a run. See docs/traces.md.

- `spans`: the observer that makes the spans; `dead_lives`: spans of lives that were killed
- `span_ids`: ids that every life of a run computes alike; `names`: the names of attributes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ninelives.core.errors import UsageError
from ninelives.engine.hooks import observe_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import TracerProvider


def enable(provider: TracerProvider | None = None, *, content: bool = False) -> Callable[[], None]:
    """Trace the runs of all runtimes entered from now on; return a function that ends it for later ones.

    `content`: also record messages of errors, which may repeat arguments. Raises UsageError.
    """
    try:
        from ninelives.ops.traces.spans import SpanObserver
    except ModuleNotFoundError as error:
        raise UsageError(
            "traces need the package opentelemetry-api", remedy="pip install 'ninelives[otel]'"
        ) from error
    return observe_process(SpanObserver(provider, content=content))
