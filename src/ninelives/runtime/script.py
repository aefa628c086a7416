"""`nl.run`: one run in a script, from its start or from where it was, to its end.

A full disk, a held lock or a server that is away pauses the script, which says so and goes on when it can; a
lease that ran out meanwhile (a long pause, a machine asleep) only means a new session. Ctrl-C and SIGTERM end
the session, so that they cost no life, and say how to go on; a second one ends the process at once, as good
as a kill.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from ninelives.core.errors import LeaseLost, StoreUnavailable, UsageError
from ninelives.engine.commit.committer import end_process
from ninelives.engine.spec.registry import get_agent
from ninelives.runtime.runtime import Runtime
from ninelives.stores.open import DEFAULT_URL
from ninelives.stores.url import path_of

PAUSE_SECONDS = 0.5
T = TypeVar("T")


class _Terminated(BaseException):
    """SIGTERM has ended the session; the process is to end as if there had been no handler."""


def run(
    agent: Any,
    *args: Any,
    id: str | None = None,
    store: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Start or resume a run, work on it here, and return its result: for scripts.

    Raises RunFailed (from what the agent raised), RunCancelled, RunEscalated; UsageError where an event loop
    runs already.
    """
    _refuse_running_loop()
    name = id if id is not None else f"{get_agent(agent).name[:200]}-{secrets.token_hex(6)}"
    is_main = threading.current_thread() is threading.main_thread()
    is_ours = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    made = _store_to_make(store)

    async def main() -> Any:
        runtime = Runtime(store)
        # A script has nothing that could outlive a broken store, and nobody else on its event loop.
        runtime._fatal, runtime._is_dedicated = end_process, True  # noqa: SLF001
        try:
            async with runtime:
                if made is not None:
                    _say(f"made a new store: {made}")
                with _interruptible(name) if is_ours else nullcontext():
                    return await insist(runtime, agent, args, name, kwargs)
        except _Terminated:
            # Here, not after asyncio.run: that would wait for bodies in threads.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            raise

    return asyncio.run(main())


def _store_to_make(store: str | None) -> str | None:
    """Return the path of a database that is not there yet: another directory has another store."""
    url = store if store is not None else os.environ.get("NINELIVES_STORE", DEFAULT_URL)
    path = path_of(url)
    return os.path.realpath(path) if path is not None and not os.path.exists(path) else None  # noqa: PTH110


async def insist(
    runtime: Runtime,
    agent: Any,
    args: tuple[Any, ...],
    id: str,
    kwargs: Mapping[str, Any] | None = None,
    *,
    say: Callable[[str], None] | None = None,
) -> Any:
    """Run, and go on after whatever passes. Raises as `Runtime.run` does, for all else."""
    return await outlast(lambda: runtime.run(agent, *args, id=id, kwargs=kwargs), say or _say)


async def outlast(ask: Callable[[], Awaitable[T]], say: Callable[[str], None]) -> T:
    """Ask until it is answered by a store that is there, and by a lease that lasts."""
    told = ""
    while True:
        try:
            return await ask()
        except StoreUnavailable as error:
            if error.what != told:
                told = error.what
                say(f"paused: {error}")
            await asyncio.sleep(PAUSE_SECONDS)
        except LeaseLost:
            say(
                "the lease was lost: was the machine asleep, the disk full, or the store's server away?"
                " It goes on in a new session"
            )


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "nl.run() is for scripts, and here an event loop runs already",
        remedy="Use `async with nl.Runtime(...) as rt: await rt.run(agent, ...)`",
    )


@contextmanager
def _interruptible(run: str) -> Iterator[None]:
    """Say how to go on at the first Ctrl-C or SIGTERM, and end at the second. Raises _Terminated."""
    stop = signal.getsignal(signal.SIGINT)  # asyncio's: it cancels what we do
    term = signal.getsignal(signal.SIGTERM)
    asked = 0

    def interrupt(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = number
        _say(f"stopping; run {run!r} is kept, and goes on when it is run again under this id")
        if callable(stop):
            stop(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    if term is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except asyncio.CancelledError:
        if asked == signal.SIGTERM:
            raise _Terminated from None
        raise
    finally:
        if not asked:  # else a second one ends the process, whatever is being cleared up
            signal.signal(signal.SIGINT, stop)
            signal.signal(signal.SIGTERM, term)


def _say(text: str) -> None:
    sys.stderr.write(f"ninelives: {text}\n")
    sys.stderr.flush()
