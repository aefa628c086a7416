"""The façade and only composition root: stores, committers, workers and handles to runs."""

from ninelives.runtime.facade import Run, Runtime, run

__all__ = ["Run", "Runtime", "run"]
