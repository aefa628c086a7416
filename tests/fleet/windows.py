"""Windows in a worker's life in which it can be made to die or to stand still.

A window is armed by a file of its name; the first worker to pass takes the file away and does it. So kills
fall exactly where they are meant to, whatever the machine's mood. Installed only in the fleets' own workers.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

from ninelives.core.model.commit import Outcome
from ninelives.stores.postgres.server.pool import Pool
from ninelives.stores.sqlite.files.checkpointer import Checkpointer
from ninelives.stores.sqlite.files.database import Database
from tests.fleet.ledger import Fact, Ledger

DEADLY = (
    "before register",
    "after register",
    "before claim",
    "after claim",
    "in takeover",
    "before load",
    "after load",
    "in replay",
    "between intent and effect",
    "between effect and result",
    "between intent and payment",
    "between payment and result",
    "before commit",
    "in commit",
    "after commit",
    "before renewal",
    "after renewal",
    "before burying others",
)
STILL = (
    "between intent and effect",
    "between effect and result",
    "between intent and payment",
    "between payment and result",
    "before commit",
    "after commit",
    "after claim",
    "after load",
)
"""Not inside of a commit: who stands still there holds the store's one write lock, and so all others up."""
_IN_COMMIT_SECONDS = 0.003


class Windows:
    """The windows of this process."""

    def __init__(self, home: Path) -> None:
        self._arms = home / "arms"
        self.ledger = Ledger(home / "ledger")
        self.using = threading.RLock()

    def passing(self, window: str) -> None:
        """Die or stand still here, if somebody has armed it."""
        if self._takes(f"die {window}"):
            self.ledger.write(Fact.DIES, step=window)
            os.kill(os.getpid(), signal.SIGKILL)
        if self._takes(f"stop {window}"):
            with self.using:  # who stands still with a lock of the store in hand stops all others too
                self.ledger.write(Fact.STOPS, step=window)
                # To this thread: it does not return. One to the process may be seen by another thread first,
                # while this one goes on and lets go of what it has.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def passing_soon(self, window: str) -> None:
        """Die some moments from now, if somebody has armed it."""
        if self._takes(f"die {window}"):
            self.ledger.write(Fact.DIES, step=window)
            threading.Thread(target=_die_later, daemon=True).start()

    def _takes(self, name: str) -> bool:
        with suppress(FileNotFoundError):
            (self._arms / name).unlink()
            return True
        return False


def _die_later() -> None:
    time.sleep(random.uniform(0, _IN_COMMIT_SECONDS))
    os.kill(os.getpid(), signal.SIGKILL)


def install(windows: Windows, kind: Any) -> None:
    """Put the windows around what stores of a kind do here, and note what they acknowledge."""

    def around(name: str, before: str, after: str) -> None:
        real: Callable[..., Any] = getattr(kind, name)

        @wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            windows.passing(before)
            answer = real(*args, **kwargs)
            windows.passing(after)
            return answer

        setattr(kind, name, call)

    _note_users(windows)
    around("register_session", "before register", "after register")
    around("renew_session", "before renewal", "after renewal")
    around("load_journal", "before load", "after load")
    around("end_sessions", "before burying others", "after burying others")
    kind.claim_runs = _claiming(windows, kind.claim_runs)
    kind.commit = _committing(windows, kind.commit)


def _note_users(windows: Windows) -> None:
    """Know when a thread of this process is in the store: reading, writing or emptying its log."""

    def noted(kind: type, name: str) -> None:
        real: Callable[..., Any] = getattr(kind, name)

        @wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            with windows.using:
                return real(*args, **kwargs)

        setattr(kind, name, call)

    for kind in (Database, Pool):
        noted(kind, "read")
        noted(kind, "write")
    noted(Pool, "ask")
    noted(Checkpointer, "_empty")


def _claiming(windows: Windows, real: Callable[..., Any]) -> Any:
    @wraps(real)
    def claim_runs(*args: Any, **kwargs: Any) -> Any:
        windows.passing("before claim")
        claims = real(*args, **kwargs)
        for run in claims.runs:
            windows.ledger.write(Fact.CLAIMED, run.id, epoch=run.epoch, length=run.length)
        if claims.runs:
            windows.passing("after claim")
        if any(run.length > 1 for run in claims.runs):
            windows.passing("in takeover")
        return claims

    return claim_runs


def _committing(windows: Windows, real: Callable[..., Any]) -> Any:
    @wraps(real)
    def commit(self: Any, batch: Any) -> Any:
        windows.passing("before commit")
        windows.passing_soon("in commit")
        verdicts = real(self, batch)
        for one, verdict in zip(batch, verdicts, strict=True):
            if verdict.outcome is Outcome.COMMITTED:
                windows.ledger.write(Fact.COMMITTED, one.run, epoch=one.epoch, length=one.new_length)
        windows.passing("after commit")
        return verdicts

    return commit
