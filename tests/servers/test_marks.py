"""Killed exactly where the servers' stores say what the next life finds."""

from __future__ import annotations

import pytest

from ninelives.core.errors import Corrupt, IdConflict
from ninelives.core.model.session import Cause
from ninelives.stores.postgres import PostgresStore
from ninelives.stores.redis import RedisStore
from ninelives.stores.redis.server import schema
from tests.contract.makers import append, new_run, new_session
from tests.crash.marks import Victim
from tests.servers.scene import until
from tests.servers.test_redis_failover import copy, server, set_back
from tests.servers.test_redis_store import row, running
from tests.servers.valkey import ValkeyServer

HERE = "tests.servers.test_marks"
__all__ = ["server"]


def register(url: str) -> None:
    """Begin a session."""
    PostgresStore(url).register_session(new_session("worker", lease_ms=1_000_000))


def reconnect(url: str) -> None:
    """See a write acknowledged, and come back to a server that has lost it."""
    store = RedisStore(url)
    store.send_signal("r1", "coin", b"5")
    print("ready", flush=True)
    input()
    store.read_run("r1")


def create(url: str) -> None:
    """Create a run."""
    RedisStore(url).create_runs([new_run("first")])


def take_step(url: str) -> None:
    """Create a run, claim it and append to it."""
    store = RedisStore(url)
    store.commit([append(running(store), b"done")])


def drop(url: str) -> None:
    """Remove a store."""
    schema.drop(url)


def test_a_lock_without_a_session_is_dropped_by_the_server(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    with Victim("a lock without a session", f"{HERE}:register", postgres_url) as victim:
        victim.dies()
    assert store.list_sessions() == store.end_sessions(None, Cause.DIED) == []

    def begins() -> bool:
        try:
            return store.register_session(new_session("worker")).id == "worker"
        except IdConflict:
            return False  # the server has not missed the connection yet

    until(begins)
    store.close()


def test_a_loss_that_a_dead_process_did_not_mark_is_marked_by_another_that_saw_it(
    server: ValkeyServer,
) -> None:
    store = RedisStore(server.url)
    run = running(store)
    kept = copy(server)
    store.commit([append(run, b"the intent of something that was done")])
    with Victim("we died before marking", f"{HERE}:reconnect", server.url) as victim:
        assert victim.read() == "ready"
        set_back(server, kept)
        victim.dies()
    stranger = RedisStore(server.url)
    assert stranger.load_journal(run.id).run.length == run.length  # it cannot know
    assert row(store).length == run.length
    with pytest.raises(Corrupt, match="lost acknowledged writes"):
        stranger.load_journal(run.id)
    stranger.close()
    store.close()


def test_numbers_that_no_run_got_are_passed_over(redis_url: str) -> None:
    with Victim("numbers without runs", f"{HERE}:create", redis_url) as victim:
        victim.dies()
    store = RedisStore(redis_url)
    assert store.read_run("first") is None
    assert running(store).number == 2
    assert store.verify() == []
    store.close()


def test_a_record_that_was_written_and_not_confirmed_is_found_by_the_next_owner(redis_url: str) -> None:
    with Victim("written, not yet confirmed", f"{HERE}:take_step", redis_url) as victim:
        victim.dies()
    store = RedisStore(redis_url)
    assert [record.body for record in store.load_journal("r1", since=0).records][1:] == [b"done"]
    assert store.verify() == []
    store.close()


def test_a_store_that_was_half_dropped_is_dropped_by_the_next_call(redis_url: str) -> None:
    RedisStore(redis_url).close()
    with Victim("part of it is left", f"{HERE}:drop", redis_url) as victim:
        victim.dies()
    assert schema.is_there(redis_url)
    schema.drop(redis_url)
    assert not schema.is_there(redis_url)
