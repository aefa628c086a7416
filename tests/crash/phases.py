"""Which part of a SQLite commit a process is in: notes for the histogram of where kills landed.

The calls that stand at the borders of the phases are wrapped in the child; nothing else changes.
"""

from __future__ import annotations

from typing import Any

from ninelives.stores.sqlite.files import anchor, database, write_queue
from tests.crash.killing import Mark


def watch(mark: Mark) -> None:
    """Note the phases of every transaction in this process from now on."""
    _around(
        write_queue.WritersQueue,
        "acquire",
        mark,
        "commit: waiting for its turn",
        "commit: in the transaction",
    )
    _around(write_queue.WritersQueue, "release", mark, "commit: leaving the queue", "outside a transaction")
    _around(database.Database, "_count", mark, "commit: in the transaction", "commit: in COMMIT")
    _around(anchor.Anchor, "write", mark, "commit: writing the anchor", "commit: durable, not told")


def _around(owner: type, name: str, mark: Mark, before: str, after: str) -> None:
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        mark.set(before)
        answer = original(*args, **kwargs)
        mark.set(after)
        return answer

    setattr(owner, name, wrapped)
