"""`nl.run`: start or resume one run in a script, and work on it until it ends.

A full disk, a held lock or an unreachable server pauses the script: it says so, and continues when it can. A
lease that expired meanwhile (a long pause, a suspended machine) only means a new session. The first Ctrl-C or
SIGTERM ends the session, which costs the run no life, and prints how to resume. The second exits at once,
which is as safe as a kill.
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
from ninelives.runtime.runtime import ProcessOptions, Runtime
from ninelives.stores.open import DEFAULT_URL
from ninelives.stores.url import path_of

PAUSE_SECONDS = 0.5
T = TypeVar("T")


class _Terminated(BaseException):
    """SIGTERM ended the session. The process must now die of it, as it would without our handler."""


def run(
    agent: Any,
    *args: Any,
    id: str | None = None,
    store: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Start or resume a run, work on it here, and return its result: for scripts.

    Raises RunFailed (from what the agent raised), RunCancelled, RunEscalated; UsageError inside a running
    event loop.
    """
    _refuse_running_loop()
    name = id if id is not None else f"{get_agent(agent).name[:200]}-{secrets.token_hex(6)}"
    is_main = threading.current_thread() is threading.main_thread()
    # A program that has handlers of its own keeps them.
    is_ours = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    new_store = _path_of_new_store(store)

    async def main() -> Any:
        # Nothing in a script can outlive a broken store, and nothing else uses its event loop.
        runtime = Runtime(store, process=ProcessOptions(fatal=end_process, is_dedicated=True))
        try:
            async with runtime:
                if new_store is not None:
                    _say(f"created a new store: {new_store}")
                with _interruptible(name) if is_ours else nullcontext():
                    return await insist(runtime, agent, args, name, kwargs)
        except _Terminated:
            # Before asyncio.run returns: it would first wait for step bodies in threads.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            raise

    return asyncio.run(main())


def _path_of_new_store(store: str | None) -> str | None:
    """Return the path of a database that does not exist yet, else None.

    The default path is relative: a script that is started in another directory uses another store.
    """
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
    """Run, and continue after transient store trouble. Raises as `Runtime.run` does, for everything else."""
    return await outlast(lambda: runtime.run(agent, *args, id=id, kwargs=kwargs), say or _say)


async def outlast(attempt: Callable[[], Awaitable[T]], say: Callable[[str], None]) -> T:
    """Repeat an attempt while the store is unavailable or the lease gets lost, and return its result."""
    reported = ""
    while True:
        try:
            return await attempt()
        except StoreUnavailable as error:
            if error.what != reported:
                reported = error.what
                say(f"paused: {error}")
            await asyncio.sleep(PAUSE_SECONDS)
        except LeaseLost:
            say(
                "the lease expired: was the machine suspended, the disk full, or the store's server down?"
                " Continuing in a new session"
            )


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "nl.run() is for scripts, and an event loop is already running here",
        remedy="Use `async with nl.Runtime(...) as rt: await rt.run(agent, ...)`",
    )


@contextmanager
def _interruptible(run: str) -> Iterator[None]:
    """Stop at the first Ctrl-C or SIGTERM and print how to resume; exit at the second.

    Raises _Terminated.
    """
    stop = signal.getsignal(signal.SIGINT)  # asyncio's handler: it cancels the main task
    term = signal.getsignal(signal.SIGTERM)
    received = 0

    def interrupt(number: int, frame: Any) -> None:
        nonlocal received
        # The second signal: as safe as a kill, and it works while clean-up hangs.
        if received:
            os._exit(128 + number)
        received = number
        _say(f"stopping; run {run!r} is kept and continues when it is run again under this id")
        if callable(stop):
            stop(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    if term is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except asyncio.CancelledError:
        if received == signal.SIGTERM:
            raise _Terminated from None
        raise
    finally:
        if not received:  # else keep our handlers: a second signal must end the process during clean-up
            signal.signal(signal.SIGINT, stop)
            signal.signal(signal.SIGTERM, term)


def _say(text: str) -> None:
    sys.stderr.write(f"ninelives: {text}\n")
    sys.stderr.flush()
