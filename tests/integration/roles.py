"""What a process of a test does: `python -m tests.integration.roles ROLE DATABASE WORDS…`.

Each role says "ready" when it is, and then does one thing for each line that it is told.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable

import apsw

from ninelives.core.errors import NineLivesError
from ninelives.core.model.commit import Commit
from ninelives.core.model.run import RunRow
from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.files import schema
from tests.contract.makers import AGENTS, append, new_run, new_session

EXTRA = "CREATE TABLE extra (note TEXT NOT NULL) STRICT; INSERT INTO extra VALUES ('migrated')"


def say(*words: object) -> None:
    """Say one line."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def hear() -> str:
    """Return the next line that we are told; empty at its end."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            break
        line += byte
    return line.decode().strip()


def told(error: BaseException) -> str:
    """Return an error's class and words, in one line."""
    return f"{type(error).__name__} {error}".replace("\n", " ")


def hold(path: str, session: str, lease_ms: str, keeper: str = "") -> None:
    """Register a session and claim what is due; renew when told so."""
    store = SqliteStore(path)
    new = new_session(session, pid=os.getpid(), lease_ms=int(lease_ms), keeper=keeper)
    store.register_session(new)
    store.claim_runs(session, 9, AGENTS)
    say("ready")
    while hear():
        try:
            say(store.renew_session(session).id)
        except NineLivesError as error:
            say(told(error))


def fork(path: str, session: str) -> None:
    """Register a session, then fork a child that lives on when this process is killed."""
    store = SqliteStore(path)
    store.register_session(new_session(session, pid=os.getpid(), lease_ms=1_000_000))
    store.claim_runs(session, 9, AGENTS)
    if os.fork() == 0:
        say("ready")  # the child, which by now has let go of its parent's locks
        hear()
        say("outlived")
        os._exit(0)
    signal.pause()


def reopen(path: str) -> None:
    """Open the store, fork, and open it anew in the child, as our own advice was."""
    store = SqliteStore(path)
    if os.fork() == 0:
        try:
            again = SqliteStore(path)
            say("opened")
            hear()
            again.close()
        except NineLivesError as error:
            say(told(error))
        os._exit(0)
    os.wait()
    store.close()


def die_writing(path: str) -> None:
    """Fork a child that lives on, and be stopped in the middle of a transaction."""
    store = SqliteStore(path)
    if os.fork() == 0:
        say("forked")
        hear()
        say("outlived")
        os._exit(0)

    def work(_: object) -> None:
        say("ready")
        signal.pause()

    store._files.write(work)


def wait(path: str) -> None:
    """Wait for work once per line."""
    store = SqliteStore(path)
    while store.wait_for_work(0):
        pass
    say("ready")
    while hear():
        say("waiting")
        say(store.wait_for_work(30))


def create(path: str, prefix: str) -> None:
    """Create as many runs as we are told, each in its own transaction."""
    store = SqliteStore(path)
    say("ready")
    while count := hear():
        for number in range(int(count)):
            store.create_runs([new_run(f"{prefix}{number}")])
        say("done")


def load(path: str, run: str, count: str, size: str) -> None:
    """Append many records to a run of this process; say how long the log was at most."""
    store = SqliteStore(path)
    longest = spy_on_log(store)
    store.register_session(new_session(run))
    store.create_runs([new_run(run, agent=run)])
    (row,) = store.claim_runs(run, 1, {run: 1}).runs
    say("ready")
    hear()
    for _ in range(int(count)):
        row = advance(store, row, append(row, bytes(int(size))))
    say("done", longest())
    store.close()


def spy_on_log(store: SqliteStore) -> Callable[[], int]:
    """Return what tells how many pages the log had at most after a commit of this store."""
    most = 0
    files = store._files

    def spy(connection: apsw.Connection, database: str, pages: int) -> int:
        nonlocal most
        most = max(most, pages)
        return files._logged(connection, database, pages)

    files._writer.set_wal_hook(spy)
    return lambda: most


def advance(store: SqliteStore, row: RunRow, commit: Commit) -> RunRow:
    """Commit, which must go well, and return the run as its owner then knows it."""
    from msgspec.structs import replace

    (verdict,) = store.commit([commit])
    assert verdict.outcome == "committed", verdict
    return replace(row, length=commit.new_length, head=commit.new_head)


def open_once(path: str) -> None:
    """Open the store when told, say the schema versions or what is wrong, and write one run."""
    say("ready")
    hear()
    try:
        store = SqliteStore(path, migrations=(*schema.migrations(), EXTRA))
        say(*store.migrate())
        store.create_runs([new_run(f"by-{os.getpid()}")])
        store.close()
    except NineLivesError as error:
        say(told(error))


def try_as(path: str, user: str) -> None:
    """Open the store as another user, and say what is wrong."""
    with tempfile.TemporaryDirectory() as elsewhere:
        SqliteStore(f"{elsewhere}/runs.db").close()  # imports all there is, while we still may read it
    if int(user):
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    try:
        SqliteStore(path).close()
        say("opened")
    except BaseException as error:
        say(told(error))


def close_twice(path: str) -> None:
    """Close a store twice; another, opened meanwhile, has the numbers of the descriptors closed first."""
    store = SqliteStore(path)
    store.close()
    other = SqliteStore(path)
    try:
        store.close()
        other.create_runs([new_run()])
        other.close()
        say("fine")
    except OSError as error:
        say(told(error))


def peek(path: str) -> None:
    """Look into the file as every tool does: with another SQLite, which knows nothing of us."""
    import sqlite3

    connection = sqlite3.connect(path)
    ((count,),) = connection.execute("SELECT count(*) FROM runs").fetchall()
    connection.close()
    say(count)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
