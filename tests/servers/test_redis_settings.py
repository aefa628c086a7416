"""What a server must be: settings that lose writes are refused, or accepted for what loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import redis

import ninelives as nl
from ninelives.core.errors import Corrupt, StoreBroken, StoreUnavailable, StoreUnsafe, UsageError
from ninelives.core.model.commit import End
from ninelives.core.model.run import State
from ninelives.stores.open import open_store
from ninelives.stores.redis import RedisStore
from ninelives.stores.redis.server import pool
from tests.contract.makers import append, reserve
from tests.servers.postgres import quick_directory
from tests.servers.scene import until
from tests.servers.test_redis_store import row, running
from tests.servers.valkey import ValkeyServer


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    """Yield a server whose settings these tests change."""
    made = ValkeyServer(quick_directory())
    yield made
    made.remove()


@pytest.fixture
def settings(server: ValkeyServer) -> Iterator[redis.Redis]:
    """Yield a client; what it sets is set back."""
    with redis.Redis(port=server.port) as client:
        yield client
        for name, value in (
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("no-appendfsync-on-rewrite", "no"),
            ("maxmemory", "0"),
            ("maxmemory-policy", "noeviction"),
        ):
            client.config_set(name, value)


@nl.action(name="settings.pay", resumable=False)
async def pay() -> int:
    """Do what must not be repeated."""
    return 1


@nl.agent(name="settings.payer")
async def payer() -> int:
    """Pay once."""
    return await pay()


def run_payer(url: str) -> object:
    async def main() -> object:
        async with nl.Runtime(url) as rt:
            return await rt.run(payer)

    return asyncio.run(main())


def confirms(client: redis.Redis) -> bool:
    """Tell whether the server can be asked to sync (WAITAOF); Redis 7.0 cannot."""
    version: str = client.info("server")["redis_version"]
    return tuple(map(int, version.split(".")[:2])) >= (7, 2)


def confirmations(client: redis.Redis, prefix: str) -> int:
    """Return how often a store had the server sync what must not be forgotten."""
    return int(client.hget(f"{{{prefix}}}:store", "confirmed") or 0)


def hang_up(client: redis.Redis) -> None:
    """Break all connections but this one, as a restart does."""
    client.client_kill_filter(_type="normal", skipme=True)


RISKS = [
    ("appendonly", {"appendonly": "no"}),
    ("appendfsync", {"appendfsync": "everysec"}),
    ("appendfsync", {"no-appendfsync-on-rewrite": "yes"}),
    ("eviction", {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}),
]


@pytest.mark.parametrize(("risk", "given"), RISKS)
def test_an_unsafe_setting_is_refused_by_name_unless_the_url_says_so(
    server: ValkeyServer, settings: redis.Redis, risk: str, given: dict[str, str]
) -> None:
    for name, value in given.items():
        settings.config_set(name, value)
    with pytest.raises(StoreUnsafe, match=f"{next(reversed(given))}.*unsafe={risk}"):
        RedisStore(server.url)
    store = RedisStore(f"{server.url}?prefix=unsafe&unsafe={risk}")
    running(store, risk + str(len(given)) + next(iter(given)))
    can_sync = risk == "appendfsync" and confirms(settings)  # such a server can still be asked to
    assert (store.lossy is None) == can_sync
    store.close()


def test_settings_that_cannot_be_read_are_refused_unless_the_url_says_so(
    server: ValkeyServer, settings: redis.Redis
) -> None:
    settings.acl_setuser(
        "agent",
        enabled=True,
        passwords=["+secret"],
        keys=["*"],
        channels=["*"],
        categories=["+@all"],
        commands=["-config"],
    )
    url = f"redis://agent:secret@127.0.0.1:{server.port}/0?prefix=managed"
    with pytest.raises(StoreUnsafe, match=r"CONFIG GET.*unsafe=config"):
        RedisStore(url)
    store = RedisStore(f"{url}&unsafe=config")
    assert "secret" not in store.url
    assert (store.lossy is None) == confirms(settings)  # its log can be synced on demand
    store.close()


def test_what_must_not_be_repeated_is_refused_where_writes_may_be_lost(
    server: ValkeyServer, settings: redis.Redis
) -> None:
    settings.config_set("appendonly", "no")
    with pytest.raises(nl.RunFailed, match="appendonly no"):
        run_payer(f"{server.url}?prefix=lossy&unsafe=appendonly")


def test_what_must_not_be_repeated_is_synced_where_the_server_does_so_late(
    server: ValkeyServer, settings: redis.Redis
) -> None:
    settings.config_set("appendfsync", "everysec")
    if not confirms(settings):
        with pytest.raises(nl.RunFailed, match="appendfsync everysec"):
            run_payer(f"{server.url}?prefix=late&unsafe=appendfsync")
        return
    assert run_payer(f"{server.url}?prefix=late&unsafe=appendfsync") == 1
    assert confirmations(settings, "late") > 0


ALL = "unsafe=appendonly,appendfsync,eviction"


@pytest.mark.parametrize("given", [RISKS[0][1], RISKS[3][1]])
def test_what_must_not_be_repeated_is_refused_once_the_server_under_a_living_worker_may_lose_writes(
    server: ValkeyServer, settings: redis.Redis, given: dict[str, str]
) -> None:
    async def main() -> None:
        async with nl.Runtime(f"{server.url}?prefix=changed-{len(given)}&{ALL}") as rt:
            assert await rt.run(payer) == 1
            for name, value in given.items():
                settings.config_set(name, value)
            hang_up(settings)
            with pytest.raises(nl.RunFailed, match=next(reversed(given))):
                await rt.run(payer)
            for name in given:
                settings.config_set(name, {"appendonly": "yes", "maxmemory": "0"}.get(name, "noeviction"))
            hang_up(settings)
            assert await rt.run(payer) == 1

    asyncio.run(main())


def test_a_server_that_syncs_late_since_it_was_started_again_is_asked_to_sync(
    server: ValkeyServer, settings: redis.Redis
) -> None:
    if not confirms(settings):
        pytest.skip("this server cannot be asked")
    store = RedisStore(f"{server.url}?prefix=later&{ALL}")
    run = running(store)
    store.commit([append(run, b"1", keys=[reserve("k", resumable=False)])])
    assert confirmations(settings, "later") == 0  # it syncs whatever it acknowledges
    settings.config_set("appendfsync", "everysec")
    hang_up(settings)
    store.commit([append(row(store), b"2", keys=[reserve("l", resumable=False)])])
    assert confirmations(settings, "later") == 1
    assert store.lossy is None
    store.close()


def test_replicas_that_are_asked_for_and_not_there_hold_up_what_must_not_be_repeated(
    server: ValkeyServer,
    settings: redis.Redis,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not confirms(settings):
        with pytest.raises(nl.RunFailed, match="WAITAOF"):
            run_payer(f"{server.url}?prefix=replicas&replicas=1")
        return
    store = RedisStore(f"{server.url}?prefix=replicas&replicas=1")
    run = running(store)
    store.commit([append(run, b"1")])  # nothing visible rests on it
    assert [what for what in store.risks if "replicas=1, and the server has 0" in what]
    monkeypatch.setattr(pool, "_WAIT_MS", 1)
    store._pool.doubt_seconds = 0.2
    with pytest.raises(StoreBroken, match=r"1 replica: the server has, and 0 of 1 .*take replicas= out"):
        store.commit([append(row(store), b"2", keys=[reserve("k", resumable=False)])])
    store.close()
    assert [record.getMessage() for record in caplog.records if "0 of 1 replicas" in record.getMessage()] == [
        "a step waits for the server and 1 replica to sync writes that must survive: "
        "the server has, and 0 of 1 replicas; it gives up after 0 s"
    ]


def test_what_must_not_be_repeated_starts_when_as_many_replicas_have_it_as_are_asked_for(
    server: ValkeyServer, settings: redis.Redis
) -> None:
    if not confirms(settings):
        pytest.skip("this server cannot be asked")
    replica = ValkeyServer(quick_directory(), replicaof=f"127.0.0.1 {server.port}")
    try:
        until(lambda: settings.info("replication")["connected_slaves"] == 1)
        url = f"{server.url}?prefix=followed&replicas=1"
        store = RedisStore(url)
        assert (dict(store.risks), store.lossy) == ({}, None)
        store.close()
        assert run_payer(url) == 1
        assert confirmations(settings, "followed") > 0
    finally:
        replica.remove()


def test_a_replica_is_unavailable(server: ValkeyServer) -> None:
    replica = ValkeyServer(quick_directory(), replicaof=f"127.0.0.1 {server.port}")
    try:
        with pytest.raises(StoreUnavailable, match="replica"):
            RedisStore(replica.url)
    finally:
        replica.remove()


@pytest.mark.parametrize(
    "wrong",
    ["0?prefix=Ro{bert", "0?unsafe=everything", "0?replicas=many", "zero", "0?prefix=", "0?prefxi=x", "0#x"],
)
def test_a_url_that_makes_no_sense_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError):
        open_store(f"redis://nobody@127.0.0.1:1/{wrong}")


def test_a_port_that_speaks_no_tls_is_found_out_while_connecting(server: ValkeyServer) -> None:
    url = server.url.replace("redis:", "rediss:")
    with pytest.raises(StoreUnavailable, match="no answer to TLS"):
        RedisStore(f"{url}?socket_connect_timeout=0.2")


def test_a_server_without_memory_refuses_and_nothing_is_written(
    server: ValkeyServer, settings: redis.Redis
) -> None:
    store = RedisStore(f"{server.url}?prefix=full")
    run = running(store)
    settings.config_set("maxmemory", "1")
    with pytest.raises(StoreUnavailable, match=r"maxmemory.*Nothing was written"):
        store.commit([append(run, b"1")])
    with pytest.raises(StoreUnavailable, match=r"maxmemory.*Nothing was written"):
        store.send_signal(run.id, "go", b"")
    settings.config_set("maxmemory", "0")
    assert row(store) == run
    store.close()


def test_a_server_without_memory_can_be_looked_at_and_pruned(
    server: ValkeyServer, settings: redis.Redis
) -> None:
    url = f"{server.url}?prefix=full2"
    store = RedisStore(url)
    run = running(store)
    store.commit([append(run, b"1", change=End(State.COMPLETED))])
    store.close()
    settings.config_set("maxmemory", "1")
    store = RedisStore(url)
    assert row(store).state is State.COMPLETED
    assert store.prune(ended_before_ms=2**60).journals == 1
    settings.config_set("maxmemory", "0")
    store.close()


def test_a_server_that_forgets_the_scripts_learns_them_again(
    server: ValkeyServer, settings: redis.Redis
) -> None:
    store = RedisStore(f"{server.url}?prefix=forgets")
    run = running(store)
    settings.script_flush()
    store.commit([append(run, b"1")])
    assert row(store).length == run.length + 1
    store.close()


def test_a_key_of_another_type_is_found_before_anything_is_written(
    server: ValkeyServer, settings: redis.Redis
) -> None:
    store = RedisStore(f"{server.url}?prefix=foreign")
    run = running(store)
    settings.delete("{foreign}:journal:r1")
    settings.set("{foreign}:journal:r1", "somebody else's")
    with pytest.raises(Corrupt, match="WRONGTYPE"):
        store.commit([append(run, b"1")])
    with pytest.raises(Corrupt, match="WRONGTYPE"):
        store.commit([append(run, b"1", keys=[reserve("k")])])
    assert row(store) == run
    assert store.read_keys(["k"]) == {}
    store.close()
