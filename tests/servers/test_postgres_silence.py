"""Connections that fall silent: who waits on one goes on with another, and a slow answer is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from ninelives.stores.postgres import PostgresStore
from ninelives.stores.postgres.server import session_locks, silence, wakeups
from ninelives.stores.postgres.server.session_locks import lock_number
from tests.contract.makers import append, new_run, new_session
from tests.servers.postgres import change, shared_url
from tests.servers.proxy import Proxy
from tests.servers.test_postgres_store import row, running, slow_commits, until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for less time than in earnest."""
    monkeypatch.setattr(silence, "LIMIT_SECONDS", 0.2)
    monkeypatch.setattr(session_locks, "_POLL_SECONDS", 0.1)


EXCHANGES: dict[str, Callable[[PostgresStore], object]] = {
    "a step": lambda store: store.commit([append(row(store), b"once")]),
    "a signal": lambda store: store.send_signal("r1", "coin", b"5"),
    "a renewal": lambda store: store.renew_session("s1"),
    "a list": lambda store: store.list_sessions(),
}


@pytest.mark.parametrize("what", EXCHANGES)
def test_an_exchange_on_a_connection_that_falls_silent_is_made_once_on_another(
    postgres_url: str, what: str
) -> None:
    with Proxy(urlsplit(shared_url()).port or 5432) as proxy:
        port = urlsplit(postgres_url).port
        with closing(PostgresStore(postgres_url.replace(f":{port}/", f":{proxy.port}/"))) as far:
            length = running(far).length
            EXCHANGES[what](far)  # what is frequent is prepared at the second time
            proxy.fall_silent()
            EXCHANGES[what](far)
            assert row(far).length == length + 2 * (what == "a step")
            assert len(far.load_journal("r1").signals) == 2 * (what == "a signal")


def test_a_slow_commit_is_waited_for(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken: list[silence.WatchedConnection] = []
    asked = threading.Event()
    busy = silence.Vigil._busy

    def ask(vigil: silence.Vigil, late: list[silence.WatchedConnection]) -> set[int] | None:
        found = busy(vigil, late)
        asked.set()
        return found

    monkeypatch.setattr(silence.Vigil, "_busy", ask)
    monkeypatch.setattr(silence.WatchedConnection, "break_off", broken.append)
    with closing(PostgresStore(postgres_url)) as store, ThreadPoolExecutor(1) as pool:
        store.create_runs([new_run("r1")])
        with slow_commits(postgres_url, "signals"):
            answer = pool.submit(store.send_signal, "r1", "coin", b"5")
            for _ in range(3):
                assert asked.wait(60)
                asked.clear()
        assert answer.result(60).number == 1
    assert not broken


def test_who_waits_for_work_on_a_connection_that_fell_silent_listens_on_another(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "_PING_SECONDS", 0.1)
    with Proxy(urlsplit(shared_url()).port or 5432) as proxy, closing(PostgresStore(postgres_url)) as near:
        port = urlsplit(postgres_url).port
        with closing(PostgresStore(postgres_url.replace(f":{port}/", f":{proxy.port}/"))) as far:
            far.wait_for_work(0.5)
            before = proxy.accepted
            proxy.fall_silent()
            until(lambda: far.wait_for_work(0.05) is not None and proxy.accepted > before)
            while far.wait_for_work(0.2):
                monkeypatch.setattr(wakeups, "_PING_SECONDS", 600.0)
            near.create_runs([new_run("r1")])
            assert far.wait_for_work(30.0)


def test_a_session_whose_lock_was_dropped_behind_a_silent_connection_takes_it_again(
    postgres_url: str,
) -> None:
    with Proxy(urlsplit(shared_url()).port or 5432) as proxy, closing(PostgresStore(postgres_url)) as near:
        port = urlsplit(postgres_url).port
        with closing(PostgresStore(postgres_url.replace(f":{port}/", f":{proxy.port}/"))) as far:
            far.register_session(new_session("s1", lease_ms=1_000_000))
            number = lock_number(near._address.schema, "s1") & 0xFFFFFFFF
            proxy.fall_silent()
            held = "FROM pg_locks WHERE locktype = 'advisory' AND objid = %s"
            assert change(f"SELECT pg_terminate_backend(pid, 10000) {held}", (number,)) == 1
            far.renew_session("s1")
            until(lambda: change(f"SELECT 1 {held}", (number,)))
