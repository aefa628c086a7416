"""A store as one life of a test's runtime sees it: it counts the calls that write, and dies at one of them.

Dead means that no call gets through any more, whoever makes it: threads stand still until the life has been
buried, and end then; the event loop is left where it is.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from ninelives.core.errors import StoreBroken, UsageError
from ninelives.store import Store

WRITES = frozenset(
    {
        "answer_item",
        "append_log",
        "claim_runs",
        "commit",
        "control_run",
        "create_runs",
        "end_sessions",
        "put_blobs",
        "register_session",
        "salvage",
        "send_signal",
    }
)
"""The calls to die at: between two of them nothing that is durable changes."""


class Died(SystemExit):
    """The process of this life is dead. SystemExit, because that is what leaves an event loop at once."""


class Kill(Struct, frozen=True):
    """When to die: before or after the n-th call of one of the methods that write, from 1."""

    at: Literal["before", "after"]
    call: str
    number: int

    def __str__(self) -> str:
        return f"{self.at}:{self.call}:{self.number}"


def parse_kill(text: str) -> Kill:
    """Read `before:commit:12` or `after:commit:12`. Raises UsageError."""
    found = re.fullmatch(r"(before|after):([a-z_]+):([1-9][0-9]{0,8})", text)
    if found is None or found[2] not in WRITES:
        raise UsageError(
            f"{text!r} names no kill",
            remedy=f"Write before:CALL:N or after:CALL:N, CALL one of {', '.join(sorted(WRITES))}",
        )
    return Kill("before" if found[1] == "before" else "after", found[2], int(found[3]))


class MortalStore:
    """The store of one life."""

    def __init__(self, under: Store, kill: Kill | None) -> None:
        self._under, self._kill = under, kill
        self._home, self._counting = threading.get_ident(), threading.Lock()
        self._buried = threading.Event()
        self.is_dead = threading.Event()
        self.calls: list[str] = []
        self.where = ""
        self.on_death: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._under, name)
        if not callable(found) or name in ("now_ms", "close"):
            return found
        if name.startswith("wait_for_"):
            return self._wait

        def call(*args: Any, **kwargs: Any) -> Any:
            number = self._count(name)
            self._pass(Kill("before", name, number))
            answer = found(*args, **kwargs)
            self._pass(Kill("after", name, number))
            return answer

        return call

    def bury(self) -> None:
        """Let the threads end that stand still in here."""
        self.is_dead.set()
        self._buried.set()

    def _count(self, name: str) -> int:
        """Return the number of a call that writes; 0 for one that only reads."""
        if name not in WRITES:
            return 0
        with self._counting:
            self.calls.append(name)
            return self.calls.count(name)

    def _pass(self, here: Kill) -> None:
        if here == self._kill:
            with self._counting:
                if not self.is_dead.is_set():
                    self.where = f"{here.at} {here.call} {here.number}"
                    self.is_dead.set()
                    self.on_death()
        if self.is_dead.is_set():
            if threading.get_ident() != self._home:
                self._buried.wait()
            raise Died

    def _wait(self, timeout_seconds: float) -> bool:
        """Wait for the end: of all else the life is told by the sandbox, at once and in order."""
        if self.is_dead.wait(timeout_seconds):
            raise StoreBroken("this life is over")
        return False
