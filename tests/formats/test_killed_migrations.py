"""A migration is killed at every statement and every call of the server; then it goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ninelives.core.errors import SchemaMismatch
from ninelives.stores.open import open_store
from tests.crash.forkserver import ForkServer
from tests.formats import keep
from tests.formats.carry_on import carry_on, faults_in
from tests.formats.test_formats import Kept

OPEN = "tests.formats.killed:open_killed"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """Yield a fork server."""
    with ForkServer() as found:
        yield found


@pytest.fixture
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    """Yield a kept store, put back: `kind` of schema 1, or `kind-2` of schema 2."""
    kind, _, version = request.param.partition("-")
    found = Kept(kind, f"schema-{version or 1}", tmp_path)
    yield found
    keep.remove(found.kind, found.url)


@pytest.mark.parametrize(
    "kept", ["sqlite", "postgresql", "sqlite-2", "postgresql-2", "redis-2"], indirect=True
)
def test_a_migration_that_is_killed_at_every_statement_leaves_the_old_store_or_the_new(
    kept: Kept, server: ForkServer
) -> None:
    kills, at = 0, 1
    while (death := server.run(OPEN, url=kept.url, at=at)).was_killed:
        kills += 1
        at += 1
    assert death.result() < at
    assert kills > 3
    assert faults_in(kept.url) == []
    assert carry_on(kept.url, kept.ledger) == []


def _migrated(tmp_path: Path, server: ForkServer, at: int) -> tuple[Kept, bool, dict[str, object]]:
    """Put a store back, kill its migration at a call, do it again; returns the store and what is in it."""
    home = tmp_path / str(at)
    home.mkdir()
    found = Kept("redis", "schema-1", home)
    was_killed = server.run(OPEN, url=found.url, at=at).was_killed
    assert server.run(OPEN, url=found.url).code == 0
    return found, was_killed, keep.content(found.url)


def test_a_migration_of_redis_that_is_killed_at_any_call_comes_to_the_same_store(
    tmp_path: Path, server: ForkServer
) -> None:
    whole, _, wanted = _migrated(tmp_path, server, 0)
    keep.remove("redis", whole.url)
    # Each run takes two calls: every third comes to both of them. NINELIVES_EVERY_CALL=1 takes them all.
    step = 1 if os.environ.get("NINELIVES_EVERY_CALL") else 3
    for at in (*range(1, 8), *range(8, 1000, step)):
        found, was_killed, content = _migrated(tmp_path, server, at)
        try:
            assert content == wanted
            if not was_killed:
                assert at > 50
                break
            if at in (5, 20, 41):
                assert faults_in(found.url) == []
                assert carry_on(found.url, found.ledger) == []
        finally:
            keep.remove("redis", found.url)


@pytest.mark.parametrize("kept", ["redis"], indirect=True)
def test_nobody_writes_to_a_redis_store_that_is_on_its_way_to_another_version(kept: Kept) -> None:
    from ninelives.stores.redis.server import scripts
    from tests.servers import valkey

    key = f"{{{kept.url.rpartition('=')[2]}}}:store"
    store = open_store(kept.url)
    valkey.behind().hset(key, "version", "1>2")
    with pytest.raises(SchemaMismatch):
        store.send_signal("talk-2", "go", b"1")
    store.close()
    valkey.behind().hset(key, "version", f"{int(scripts.VERSION) + 1}")
    with pytest.raises(SchemaMismatch, match="this Nine Lives knows 1 to"):
        open_store(kept.url)
    valkey.behind().hset(key, "version", "1>2")
    reopened = open_store(kept.url)
    assert reopened.migrate() == (1, int(scripts.VERSION))
    reopened.close()
