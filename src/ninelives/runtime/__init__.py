"""The façade and only composition root: stores, committers, workers and handles to runs."""

from ninelives.runtime.inbox import InboxItem
from ninelives.runtime.run import Run
from ninelives.runtime.runtime import Runtime
from ninelives.runtime.script import run

__all__ = ["InboxItem", "Run", "Runtime", "run"]
