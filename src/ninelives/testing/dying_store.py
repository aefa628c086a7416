"""A store for one test runtime: it counts the writing calls, and dies at one of them.

After its death no call gets through. Calling threads block until the runtime is cleaned up, and then end; the
event loop is abandoned where it is.
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
"""The calls to die at: between two of them nothing durable changes."""


class Died(SystemExit):
    """The simulated process is dead. A SystemExit, because that leaves an event loop at once."""


class Kill(Struct, frozen=True):
    """When to die: before or after the n-th call of a writing method, counted from 1."""

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
            f"{text!r} is not a kill",
            remedy=f"Write before:CALL:N or after:CALL:N, CALL one of {', '.join(sorted(WRITES))}",
        )
    return Kill("before" if found[1] == "before" else "after", found[2], int(found[3]))


class DyingStore:
    """A store that dies at its kill."""

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
        """Release the threads that block in here, so that they end."""
        self.is_dead.set()
        self._buried.set()

    def _count(self, name: str) -> int:
        """Return the number of a writing call; 0 for one that only reads."""
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
        """Wait only for death: the sandbox itself wakes the runtime on all changes, at once and in order."""
        if self.is_dead.wait(timeout_seconds):
            raise StoreBroken("this runtime was killed")
        return False
