"""The façade and only composition root: it connects stores, committers, workers and handles."""

from ninelives.runtime.inbox import InboxItem
from ninelives.runtime.run import Run
from ninelives.runtime.runtime import Runtime
from ninelives.runtime.script import run

__all__ = ["InboxItem", "Run", "Runtime", "run"]
