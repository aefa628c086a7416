"""A notifier that kills itself: `python -m tests.notify.victim URL CONFIG WHEN [NUMBER]`.

WHEN is `before` or `after` the NUMBER-th call of the store (from 0), `count` (print the calls) or `run`
(until it is killed).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from ninelives.stores.open import open_store
from tests.notify.scene import notifier


class Mortal:
    """A store whose process is killed before or after one of its calls."""

    def __init__(self, store: Any, when: str, number: int) -> None:
        self._store, self._when, self._number = store, when, number
        self._lock = threading.Lock()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                number = len(self.calls)
                self.calls.append(name)
            if (self._when, number) == ("before", self._number):
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return found(*args, **kwargs)
            finally:
                if (self._when, number) == ("after", self._number):
                    os.kill(os.getpid(), signal.SIGKILL)

        return call


def main(url: str, config: str, when: str, number: str = "-1") -> None:
    """Run a notifier once, or until it is killed."""
    store = Mortal(open_store(url), when, int(number))
    made = notifier(store, Path(config))
    if when == "run":
        made.run()
    made.once()
    sys.stdout.write(" ".join(store.calls))


if __name__ == "__main__":
    main(*sys.argv[1:])
