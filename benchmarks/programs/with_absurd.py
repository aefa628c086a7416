"""The plays on Absurd, for its own environment: its SQL in PostgreSQL, workers of its synchronous client."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from benchmarks.programs import play
from benchmarks.programs.play import KILLED_IN, STEPS, Numbers

_sdk: Any = importlib.import_module("absurd_sdk")
_psycopg: Any = importlib.import_module("psycopg")
_WORKERS = 20
_LEASE_SECONDS = 120
_SHORT_LEASE_SECONDS = 2
_doom = play.Doom()


def sequence(params: Mapping[str, int], context: Any) -> int:
    """Take one step after the other."""
    for _ in range(params["steps"]):
        context.step("step", play.text)
    return params["steps"]


def twenty(params: Mapping[str, int], context: Any) -> int:
    """Do twenty steps."""
    for number in range(STEPS):
        context.step("fatal", lambda number=number: _fatal(number, params["runs"]))
    return STEPS


def _fatal(number: int, runs: int) -> str:
    if number == KILLED_IN and play.is_doomed():
        _doom.arrive(runs)
        threading.Event().wait()
    return play.text()


def approved(params: Mapping[str, int], context: Any) -> float:
    """Wait for an event; return when it came."""
    context.await_event(f"yes-{params['number']}")
    return time.time()


def _client(url: str) -> Any:
    client = _sdk.Absurd(url)
    for task in (sequence, twenty, approved):
        client.register_task(task.__name__)(task)
    return client


def _ready(url: str) -> Any:
    """Install its functions where they are missing, as `absurdctl init` does, and give a client."""
    with _psycopg.connect(url, autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'absurd'").fetchone()
        if not known:
            connection.execute(importlib.import_module("absurdctl").BUNDLED_SCHEMA_SQL)
    client = _client(url)
    if not known:
        client.create_queue()
    return client


def _work(client: Any, count: int = 1) -> None:
    client.work_batch("bench", claim_timeout=_LEASE_SECONDS, batch_size=count)


def _is_done(client: Any, task: str) -> bool:
    snapshot = client.fetch_task_result(task)
    return snapshot is not None and snapshot.state == "completed"


def play_sequence(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One run of so many steps: started, claimed and done by one client, so that no poll is waited for."""
    client = _ready(url)
    client.spawn("sequence", {"steps": numbers["steps"]})
    _work(client)
    began = time.perf_counter()
    task = client.spawn("sequence", {"steps": numbers["steps"]})["task_id"]
    _work(client)
    took = time.perf_counter() - began
    assert _is_done(client, task)
    return {"seconds": took}


def play_many(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Many runs at once, from the first start to the last result.

    Each of twenty clients in a thread starts its share, claims as many at once, and does them.
    """
    client = _ready(url)
    client.spawn("sequence", {"steps": 10})
    _work(client)
    clients = [_client(url) for _ in range(_WORKERS)]
    began = time.perf_counter()
    tasks: list[str] = []

    def work(one: Any, share: int) -> None:
        given = {"steps": numbers["steps"]}
        tasks.extend([one.spawn("sequence", given)["task_id"] for _ in range(share)])
        _work(one, share)

    shares = [len(range(first, numbers["runs"], _WORKERS)) for first in range(_WORKERS)]
    threads = [
        threading.Thread(target=work, args=given) for given in zip(clients, shares, strict=True) if given[1]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while not all(_is_done(client, task) for task in tasks):
        _work(client)
    assert len(tasks) == numbers["runs"]
    return {"seconds": time.perf_counter() - began}


def play_singles(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One-step runs, each started when the one before it has ended; no poll is waited for."""
    client = _ready(url)
    client.spawn("sequence", {"steps": 10})
    _work(client)
    began = time.perf_counter()
    for _ in range(numbers["runs"]):
        task = client.spawn("sequence", {"steps": 1})["task_id"]
        _work(client)
        assert _is_done(client, task)
    return {"seconds": time.perf_counter() - began}


def play_twenty(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Start runs and die in their step 11, or go on with them when their claims have run out."""
    runs, client = numbers["runs"], _ready(url)
    if play.is_doomed():
        for number in range(runs):
            client.spawn("twenty", {"runs": runs}, idempotency_key=f"run-{number}")
    worker = threading.Thread(
        target=client.start_worker,
        kwargs={"claim_timeout": _SHORT_LEASE_SECONDS, "concurrency": runs, "poll_interval": 0.05},
        daemon=True,
    )
    worker.start()
    asker = _client(url)
    tasks = [
        asker.spawn("twenty", {"runs": runs}, idempotency_key=f"run-{number}")["task_id"]
        for number in range(runs)
    ]
    for task in tasks:
        while not _is_done(asker, task):
            time.sleep(0.02)
    return {}


def play_work(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Be a worker that looks for work every 10 ms."""
    _ready(url).start_worker(claim_timeout=_LEASE_SECONDS, poll_interval=0.01)
    return {}


def play_waking(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Events sent from here to runs that wait in another process: seconds until each goes on."""
    client = _client(url)
    waits = []
    for number in range(numbers["runs"]):
        task = None
        while task is None:
            with suppress(_psycopg.Error):  # until the worker has installed everything
                task = client.spawn("approved", {"number": number})["task_id"]
            time.sleep(0.1)  # it waits by now
        sent = time.time()
        client.emit_event(f"yes-{number}", "yes")
        while not _is_done(client, task):
            time.sleep(0.02)
        waits.append(client.fetch_task_result(task).result - sent)
    return {"waits": waits}


def play_once(url: str, numbers: Numbers) -> Mapping[str, object]:
    """One run of one step, in a process of its own."""
    client = _ready(url)
    task = client.spawn("sequence", {"steps": 1})["task_id"]
    _work(client)
    assert _is_done(client, task)
    return {}


PLAYS = {
    "sequence": play_sequence,
    "many": play_many,
    "singles": play_singles,
    "twenty": play_twenty,
    "work": play_work,
    "waking": play_waking,
    "once": play_once,
    "weight": lambda url, numbers: {"bytes": play.weight("absurd-sdk", "psycopg-binary")},
}

if __name__ == "__main__":
    play.perform(PLAYS)
