"""Forks: a child cannot use its parent's store, cannot harm it, and does not keep its session alive."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from ninelives.core.errors import StoreUnsafe
from ninelives.core.model.run import Control, NewRun, RunQuery
from ninelives.core.model.session import Cause, NewSession, Session
from tests.crash import mutants, processes
from tests.crash.disk import Writer, judged
from tests.crash.stores import open_at


def misuse(home: str) -> list[str]:
    """A child calls everything on its parent's store while the parent writes; a task of the fork server."""
    told = Path(home) / "ledger"
    writer = Writer(Path(home), told, "parent")
    writer.append()
    store = writer.store

    def child() -> None:
        calls: list[Callable[[], object]] = [
            lambda: store.read_run("parent"),
            lambda: store.list_runs(RunQuery()),
            lambda: store.load_journal("parent"),
            lambda: store.create_runs([NewRun(id="child", agent="a", fingerprint=b"", body=b"")]),
            lambda: store.register_session(NewSession(id="child", host="h", pid=1)),
            lambda: store.renew_session("parent"),
            lambda: store.end_sessions(["parent"], Cause.STOPPED),
            lambda: store.end_sessions(None, Cause.DIED),
            store.list_sessions,
            lambda: store.claim_runs("parent", 1, {"parent": 1}),
            lambda: store.commit([]),
            lambda: store.read_keys(["k"]),
            lambda: store.send_signal("parent", "s", b""),
            lambda: store.control_run("parent", Control.PAUSE),
            store.list_inbox,
            lambda: store.answer_item("i", digest=b"", body=b"", by="me"),
            lambda: store.put_blobs([b"x"]),
            lambda: store.get_blobs([b"x" * 16]),
            lambda: store.wait_for_work(0),
            store.stats,
            store.gauges,
            store.verify,
            lambda: store.prune(ended_before_ms=0),
        ]
        for number, call in enumerate(calls):
            try:
                call()
            except StoreUnsafe:
                continue
            raise AssertionError(f"call {number} was not refused")
        store.close()

    pid = processes.fork(child)
    for _ in range(20):
        writer.append()
    code = processes.collect(pid)
    wrong = [f"the child ended with {code}"] if code else []
    writer.append()
    writer.store.renew_session("parent")
    writer.store.close()
    return wrong + judged(Path(home), told)


def orphan(home: str, *, mutant: str = "") -> list[str]:
    """A worker forks a child and is killed; the child lives on. A task of the fork server."""
    mutants.plant(mutant)
    told = Path(home) / "ledger"
    ready_reader, ready_writer = os.pipe()
    gate_reader, gate_writer = os.pipe()

    def parent() -> None:
        Writer(Path(home), told, "parent").append()
        if os.fork() == 0:
            os.close(gate_writer)
            os.write(ready_writer, b"c")
            processes.read_byte(gate_reader, 20)  # until the task is over, or for 20 s
            os._exit(0)
        os.write(ready_writer, b"p")
        processes.read_byte(gate_reader, 20)

    pid = processes.fork(parent)
    for _ in range(2):
        processes.read_byte(ready_reader)
    processes.kill(pid)
    try:
        store = open_at(Path(home))
        ended: list[Session] = []
        deadline = time.monotonic() + (1 if mutant else 10)
        while not ended and time.monotonic() < deadline:  # a server takes a moment
            ended = store.end_sessions(None, Cause.EXPIRED)
        wrong = (
            [] if [(one.id, one.cause) for one in ended] == [("parent", Cause.DIED)] else [f"ended: {ended}"]
        )
        row = store.read_run("parent")
        if row is None or row.session is not None:
            wrong.append(f"the run still belongs to {row and row.session}")
        store.close()
    finally:
        os.close(gate_writer)
    return wrong + judged(Path(home), told)
