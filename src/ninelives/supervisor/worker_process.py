"""A worker process: loads the agents, works, tells its supervisor that it lives, and ends when that is gone.

There is no drain: told to stop, killed, or left alone by a dead supervisor, it leaves the same state behind.
Whatever ends it, it ends by `_exit`: no handler of anybody runs while runs may already be another's.
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
from ninelives.runtime import Runtime, agent_loader
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
    WARD,
    WorkerOrder,
)

_OOM_SCORE = 500
_SWEEPS = 50


def main() -> None:
    """Be a worker, as the order on standard input says, which is empty from then on. Never returns."""
    order = _order()
    link = _link()
    sys.argv = [order.target]
    faulthandler.register(STACK_SIGNAL, all_threads=True)
    threading.Thread(target=_end_with_supervisor, args=(link,), name="ninelives-ward", daemon=True).start()
    with suppress(OSError):  # if memory runs out, one of us goes, and not who could start us again
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE), encoding="ascii")
    try:
        agent_loader.load(order.target)
        if not AGENTS:
            raise UsageError(  # noqa: TRY301 (told as any other fault of the code)
                f"{order.target} declares no agent", remedy="Declare one with @nl.agent"
            )
        for limited in order.limits:
            get_agent(limited)
        asyncio.run(_work(order, link))
    except LeaseLost as error:
        _end(error, EXIT_LEASE)
    except StoreAway as error:
        _end(error, EXIT_AWAY)
    except StoreError as error:
        _end(error, EXIT_STORE)
    except UsageError as error:
        _end(error, EXIT_USAGE)
    except BaseException as error:  # noqa: BLE001 (whatever it is, this process ends with it)
        _end(error, EXIT_CODE)
    _end(None, EXIT_CODE)


def _order() -> WorkerOrder:
    with open(0, "rb", closefd=False) as told:
        order = msgspec.json.decode(told.read(), type=WorkerOrder)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    return order


def _link() -> socket.socket:
    link = socket.socket(fileno=LINK_FD)
    link.set_inheritable(False)
    return link


async def _work(order: WorkerOrder, link: socket.socket) -> None:
    loop = asyncio.get_running_loop()

    def beat() -> None:
        with suppress(OSError):  # full: it is not being read; gone: our end is near
            link.send(BEAT, socket.MSG_DONTWAIT)
        loop.call_later(order.beat_seconds, beat)

    runtime = Runtime(order.url, lease_seconds=order.lease_seconds)
    # A worker has nothing that could outlive a broken store, and nobody else on its event loop.
    runtime._fatal, runtime._is_dedicated = end_process, True  # noqa: SLF001
    runtime._keeper, runtime._session = order.keeper, order.session  # noqa: SLF001
    runtime._identity = order.identity  # noqa: SLF001
    runtime._away = _away()  # noqa: SLF001
    beat()
    async with AsyncExitStack() as stack:
        await _enter(runtime, stack, order.patience_seconds)
        link.send(READY)
        await runtime.work(order.concurrency, limits=order.limits)


async def _enter(runtime: Runtime, stack: AsyncExitStack, patience_seconds: float) -> None:
    """Open the store, as soon as it is there and has room for one more. Raises StoreAway after a while."""
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
    """Return who tells what is waited for, once."""
    told = ""

    def tell(error: StoreAway) -> None:
        nonlocal told
        if error.what != told:
            sys.stderr.write(f"waiting: {error}\n")
        told = error.what

    return tell


def _end_with_supervisor(link: socket.socket) -> None:
    """Wait for the supervisor's death; then kill what we have started, and last ourselves.

    As long as we live our lock is held, so that nobody takes our runs before our strays are gone.
    """
    with suppress(OSError):
        while link.recv(64):
            pass
    ward = os.environ.get(WARD, "")
    for _ in range(_SWEEPS):
        if not descendants.sweep_descendants(ward):
            break
    # CRASH: what a thread of ours starts between the last look and this is swept by the next supervisor.
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
