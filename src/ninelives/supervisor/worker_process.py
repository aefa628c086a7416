"""The main function of a worker process: load the agents, work, send beats, end with the supervisor.

There is no graceful drain: stopped, killed, or orphaned by a dead supervisor, it leaves the same state.
It always ends by `_exit`: no exit handler may run when other workers may already own its runs.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import socket
import sys
import threading
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import msgspec

from ninelives.core.errors import LeaseLost, NineLivesError, StoreAway, StoreError, UsageError
from ninelives.engine.commit.committer import EXIT_CODE, end_process
from ninelives.engine.spec.registry import AGENTS, get_agent
from ninelives.engine.worker.worker import POLL_SECONDS, Away
from ninelives.logs.output import set_up
from ninelives.runtime import ProcessOptions, Runtime, agent_loader
from ninelives.supervisor import descendants
from ninelives.supervisor.protocol import (
    BEAT,
    EXIT_AWAY,
    EXIT_LEASE,
    EXIT_STORE,
    EXIT_USAGE,
    LINK_FD,
    READY,
    STACK_SIGNAL,
    WORKER_MARK,
    WorkerSettings,
)

_OOM_SCORE = 500
# Bounded: a descendant that forks faster than we kill must
# not keep this process, and with it the lock, forever.
_SWEEPS = 50


def main() -> None:
    """Run a worker, configured by the `WorkerSettings` on standard input. Never returns."""
    settings = _settings()
    link = _link()
    # User code must not see our own command line, nor parse it as its own.
    sys.argv = [settings.target]
    # Before user code is loaded: an import that hangs must be able to show where.
    faulthandler.register(STACK_SIGNAL, all_threads=True)
    threading.Thread(
        target=_end_with_supervisor, args=(link,), name="ninelives-supervisor-watch", daemon=True
    ).start()
    with suppress(OSError):  # if memory runs out, the kernel should kill a worker, not the supervisor
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE), encoding="ascii")
    try:
        agent_loader.load(settings.target)
        set_up(settings.log)
        if not AGENTS:
            raise UsageError(  # noqa: TRY301 (reported like any other error of the code)
                f"{settings.target} declares no agent", remedy="Declare one with @nl.agent"
            )
        for limited in settings.limits:
            get_agent(limited)
        asyncio.run(_work(settings, link))
    except LeaseLost as error:
        _end(error, EXIT_LEASE)
    except StoreAway as error:
        _end(error, EXIT_AWAY)
    except StoreError as error:
        _end(error, EXIT_STORE)
    except UsageError as error:
        _end(error, EXIT_USAGE)
    except BaseException as error:  # noqa: BLE001 (whatever the error, this process ends)
        _end(error, EXIT_CODE)
    _end(None, EXIT_CODE)


def _settings() -> WorkerSettings:
    """Read the configuration, and replace standard input by /dev/null: user code must not read it."""
    with open(0, "rb", closefd=False) as stdin:
        settings = msgspec.json.decode(stdin.read(), type=WorkerSettings)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return settings


def _link() -> socket.socket:
    link = socket.socket(fileno=LINK_FD)
    link.set_inheritable(False)
    return link


async def _work(settings: WorkerSettings, link: socket.socket) -> None:
    loop = asyncio.get_running_loop()

    def beat() -> None:
        with suppress(OSError):  # buffer full: the supervisor does not read; closed: we end soon
            link.send(BEAT, socket.MSG_DONTWAIT)
        loop.call_later(settings.beat_seconds, beat)

    # A worker may exit when its store breaks, and no other code shares its event loop.
    options = ProcessOptions(
        fatal=end_process,
        is_dedicated=True,
        away=_away(),
        keeper=settings.keeper,
        session=settings.session,
        identity=settings.identity,
    )
    policy = settings.policy or ()
    runtime = Runtime(settings.url, policy=policy, lease_seconds=settings.lease_seconds, process=options)
    beat()
    async with AsyncExitStack() as stack:
        await _enter(runtime, stack, settings.patience_seconds)
        # After the store is open and the code is loaded: a rolling restart kills the old worker at this sign.
        link.send(READY)
        await runtime.work(settings.concurrency, limits=settings.limits)


async def _enter(runtime: Runtime, stack: AsyncExitStack, patience_seconds: float) -> None:
    """Open the store; wait while its server is unreachable or full. Raises StoreAway after the patience."""
    away, deadline = _away(), asyncio.get_running_loop().time() + patience_seconds
    while True:
        try:
            await stack.enter_async_context(runtime)
        except StoreAway as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            away(error)
            await asyncio.sleep(POLL_SECONDS)
        else:
            return


def _away() -> Away:
    """Return a callback that prints each new reason for waiting once."""
    printed = ""

    def report(error: StoreAway) -> None:
        nonlocal printed
        if error.what != printed:
            sys.stderr.write(f"waiting: {error}\n")
        printed = error.what

    return report


def _end_with_supervisor(link: socket.socket) -> None:
    """Wait for the supervisor's death; then kill our descendants, and last this process.

    This process holds its session lock until it dies, so no other worker takes our runs before our
    descendants are gone.
    """
    with suppress(OSError):
        while link.recv(64):
            pass
    mark = os.environ.get(WORKER_MARK, "")
    for _ in range(_SWEEPS):
        if not descendants.sweep_descendants(mark):
            break
    # CRASH: a process that a thread starts between the last sweep and this is swept by the next supervisor.
    os.killpg(0, signal.SIGKILL)


def _end(error: BaseException | None, exit_code: int) -> None:
    if isinstance(error, NineLivesError):
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    elif error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(exit_code)


if __name__ == "__main__":
    main()
