"""The façade and only composition root: it connects stores, committers, workers and handles."""

from ninelives.runtime.inbox import InboxItem
from ninelives.runtime.run import Run
from ninelives.runtime.runtime import ProcessOptions, Runtime
from ninelives.runtime.script import run

__all__ = ["InboxItem", "ProcessOptions", "Run", "Runtime", "run"]
