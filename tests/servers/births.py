"""`python -m tests.servers.births URL`: kill -9 whoever makes the schema, at every exchange with the server.

For each exchange of a process that opens a new store: one that dies before it, and one that dies when it has
sent its part and never hears the answer. After each death two others open the store at once, and use it.
Prints how many died.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg

from ninelives.stores.postgres import PostgresStore
from tests.contract.makers import new_run

MOMENTS = ("before", "unheard")
OPENERS = 2


def die_at(nth: int, moment: str) -> None:
    """Have this process killed at its n-th exchange with a server."""
    wait, count = psycopg.Connection.wait, 0

    def waiting(self: Any, gen: Any, *rest: Any) -> Any:
        nonlocal count
        count += 1
        if count == nth and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if count == nth and moment == "unheard":
            next(gen)
            os.kill(os.getpid(), signal.SIGKILL)
        return wait(self, gen, *rest)

    setattr(psycopg.Connection, "wait", waiting)  # noqa: B010


def open_and_use(url: str) -> None:
    """Open the store as everybody does, and create the same run."""
    store = PostgresStore(url)
    (made,) = store.create_runs([new_run("r1")])
    assert not isinstance(made, Exception), made
    os._exit(0)  # no goodbye


def open_and_die(url: str, nth: int, moment: str) -> None:
    """Open the store, and be killed on the way, if it is that long."""
    die_at(nth, moment)
    PostgresStore(url)


def child(act: Callable[[], None]) -> int:
    """Do something in a process of its own, and return its number."""
    pid = os.fork()
    if pid:
        return pid
    try:
        act()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def code_of(pid: int) -> int:
    """Wait for a process to end, and return how it did."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(url: str) -> int:
    """Kill at every exchange until there is none left; return how many died."""
    deaths = 0
    for nth in range(1, 100):
        died = 0
        for moment in MOMENTS:
            schema = f"{url}?schema=birth_{nth}_{moment}"
            died += code_of(child(partial(open_and_die, schema, nth, moment))) == -signal.SIGKILL
            openers = [child(partial(open_and_use, schema)) for _ in range(OPENERS)]
            codes = [code_of(pid) for pid in openers]
            assert codes == [0] * OPENERS, (nth, moment, codes)
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA birth_{nth}_{moment} CASCADE".encode())
        deaths += died
        if not died:
            return deaths
    raise AssertionError("it never came to be")


if __name__ == "__main__":
    print(main(sys.argv[1]))
