"""Wake-ups: between processes and threads, to everybody who waits, and never in the way of a commit."""

from __future__ import annotations

import os
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.files.wakeups import Datagrams
from tests.contract.makers import new_run
from tests.integration.conftest import Opener, Starter

LONG_SECONDS = 30.0


def calm(store: SqliteStore) -> None:
    """Take in all wake-ups so far."""
    while store.wait_for_work(0):
        pass


def sockets(path: Path) -> list[Path]:
    """Return the sockets of who waits, or did."""
    return sorted(path.with_name(path.name + "-live").glob("*.wake"))


def test_the_first_call_returns_at_once(opened: Opener) -> None:
    store = opened()
    assert store.wait_for_work(LONG_SECONDS) is True
    assert store.wait_for_work(0) is False


def test_the_first_call_of_each_thread_returns_at_once(opened: Opener) -> None:
    store = opened()
    calm(store)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(store.wait_for_work, LONG_SECONDS).result(LONG_SECONDS) is True
        assert pool.submit(store.wait_for_work, 0).result(LONG_SECONDS) is False


def test_a_process_wakes_another(opened: Opener, started: Starter) -> None:
    store = opened()
    child = started("wait")
    assert child.read() == "ready"
    assert child.ask() == "waiting"
    store.create_runs([new_run()])
    assert child.read() == "True"


def test_a_wake_up_between_two_calls_of_a_process_is_not_lost(opened: Opener, started: Starter) -> None:
    store = opened()
    child = started("wait")
    assert child.read() == "ready"
    store.create_runs([new_run()])
    assert child.ask() == "waiting"
    assert child.read() == "True"


def test_all_processes_that_wait_are_woken(opened: Opener, started: Starter) -> None:
    children = [started("wait") for _ in range(3)]
    assert [child.read() for child in children] == ["ready"] * 3
    assert [child.ask() for child in children] == ["waiting"] * 3
    opened().create_runs([new_run()])
    assert [child.read() for child in children] == ["True"] * 3


def test_all_threads_that_wait_are_woken(opened: Opener) -> None:
    store = opened()
    count = 6
    calmed, created = Barrier(count + 1), Barrier(count + 1)

    def wait() -> list[bool]:
        calm(store)
        calmed.wait(LONG_SECONDS)
        early = store.wait_for_work(0.9 * LONG_SECONDS)  # some wait already, some are late
        created.wait(LONG_SECONDS)
        return [early, store.wait_for_work(0)]

    with ThreadPoolExecutor(count) as pool:
        waiting = [pool.submit(wait) for _ in range(count)]
        calmed.wait(LONG_SECONDS)
        began = time.monotonic()
        store.create_runs([new_run()])
        created.wait(LONG_SECONDS)
        assert time.monotonic() - began < LONG_SECONDS / 2, "somebody waited until his time was over"
        assert [one.result(LONG_SECONDS) for one in waiting] == [[True, False]] * count


def test_the_socket_of_a_dead_process_is_removed(path: Path, opened: Opener, started: Starter) -> None:
    store = opened()
    child = started("wait")
    assert child.read() == "ready"
    (dead,) = sockets(path)
    child.kill()
    store.wait_for_work(0)
    store.create_runs([new_run()])
    (own,) = sockets(path)
    assert own != dead
    assert store.wait_for_work(0) is True


def test_closing_removes_the_socket(path: Path) -> None:
    store = SqliteStore(path)
    store.wait_for_work(0)
    assert len(sockets(path)) == 1
    store.close()
    assert sockets(path) == []


def test_who_never_waits_has_no_socket(path: Path, opened: Opener) -> None:
    opened().create_runs([new_run()])
    assert sockets(path) == []


def test_a_reader_that_does_not_read_holds_nobody_up(opened: Opener, started: Starter) -> None:
    store = opened()
    child = started("wait")
    assert child.read() == "ready"
    child.stop()
    for _ in range(500):  # more than the socket's buffer takes
        store._files.wake.send()
    store.create_runs([new_run()])
    child.resume()
    assert child.ask() == "waiting"
    assert child.read() == "True"


def test_what_else_lies_beside_the_sockets_is_no_trouble(path: Path, opened: Opener) -> None:
    store = opened()
    live = path.with_name(path.name + "-live")
    (live / "a-file.wake").write_bytes(b"")
    (live / "a-directory.wake").mkdir()
    (live / "nowhere.wake").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.bind(str(live / "stream.wake"))
        store.create_runs([new_run()])
    assert store.read_run("r1") is not None


def test_a_commit_goes_through_when_nobody_can_be_woken(opened: Opener) -> None:
    store = opened()
    store.create_runs([new_run("warm")])
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))  # no descriptor is left
        store.create_runs([new_run()])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert store.read_run("r1") is not None


def test_waiting_works_with_thousands_of_open_files(opened: Opener) -> None:
    taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        store = opened()
        calm(store)
        assert store.wait_for_work(0.001) is False
        store.create_runs([new_run()])
        assert store.wait_for_work(LONG_SECONDS) is True
    finally:
        for descriptor in taken:
            os.close(descriptor)


def test_closing_does_not_mind_that_a_sleeper_has_more_to_read_than_fits(tmp_path: Path) -> None:
    wake = Datagrams(tmp_path, "me")
    assert wake.wait(0.0)
    for _ in range(1000):
        wake.send()
    wake._reading = True  # it has been woken, and had no turn of the processor yet
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(wake.close)
        while not closing.done():
            with wake._changed:
                if wake._is_closed:
                    wake._reading = False
                    wake._changed.notify_all()
        closing.result()
