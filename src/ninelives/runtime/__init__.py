"""The façade and only composition root: stores, committers, workers and handles to runs."""

from ninelives.runtime.facade import Runtime, run
from ninelives.runtime.handle import Run
from ninelives.runtime.inbox import InboxItem

__all__ = ["InboxItem", "Run", "Runtime", "run"]
