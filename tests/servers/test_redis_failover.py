"""A server that comes back without what it had acknowledged: what may be forgotten goes before a person."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ninelives.core.errors import Corrupt
from ninelives.core.model.commit import End, Outcome, Park
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.key import KeyState
from ninelives.core.model.run import State
from ninelives.core.model.session import Cause
from ninelives.engine.worker.stranded import Stranded
from ninelives.stores.redis import RedisStore
from tests.contract.makers import AGENTS as AGENTS_WANTED
from tests.contract.makers import append, damage_in, new_item, new_run, new_session, reserve
from tests.servers.postgres import quick_directory
from tests.servers.scene import AGENTS, Scene, start_one, until
from tests.servers.test_redis_store import row, running
from tests.servers.valkey import ValkeyServer


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    """Yield a server of the test's own, which it sets back."""
    made = ValkeyServer(quick_directory())
    yield made
    made.remove()


def copy(server: ValkeyServer) -> Path:
    """Return a copy of all that the server keeps now, as an asynchronous replica might have it."""
    kept = server.root / "copy"
    shutil.copytree(server.data, kept)
    return kept


def set_back(server: ValkeyServer, kept: Path) -> None:
    """Let the server go on from a copy, as if it had taken over."""
    server.kill()
    shutil.rmtree(server.data)
    kept.rename(server.data)
    server.start()


def test_a_restart_that_lost_nothing_is_no_failover(server: ValkeyServer) -> None:
    store = RedisStore(server.url)
    run = running(store)
    for _ in range(3):
        store.commit([append(row(store), b"1")])
        server.kill()
        server.start()
    assert store.load_journal(run.id).run.length == run.length + 3
    assert damage_in(store) == []
    store.close()


def test_a_run_whose_records_were_lost_is_damaged_until_a_person_says_go_on(server: ValkeyServer) -> None:
    store = RedisStore(server.url)
    run = running(store)
    kept = copy(server)
    store.commit([append(run, b"the intent of something that was done")])
    set_back(server, kept)
    assert row(store).length == run.length
    with pytest.raises(Corrupt, match="lost acknowledged writes"):
        store.load_journal(run.id)
    with pytest.raises(Corrupt, match="lost acknowledged writes"):
        store.salvage(run.id, run.epoch)
    (damaged,) = store.load_journals([run.id])
    assert isinstance(damaged, Corrupt)
    assert [fault.run for fault in store.verify()] == [run.id]
    store.commit([append(run, opens=[new_item("i", kind=ItemKind.DAMAGE)], change=Park(None, "", 0))])
    store.answer_item("i", digest=b"d", body=b"go on", by="ada")
    assert store.load_journal(run.id).run.length == run.length
    store.close()


def test_a_claim_that_was_lost_makes_the_run_doubtful_too(server: ValkeyServer) -> None:
    store = RedisStore(server.url)
    running(store, "other")
    store.create_runs([])
    kept = copy(server)
    run = running(store, "r1")
    set_back(server, kept)
    assert store.read_run(run.id) is None  # created since; whoever started it is told that it is not there
    with pytest.raises(Corrupt, match="lost acknowledged writes"):
        store.load_journal("other")  # it was under way
    store.close()


def test_a_run_whose_end_was_lost_under_a_session_that_lives_is_given_back_and_doubtful(
    server: ValkeyServer,
) -> None:
    store = RedisStore(server.url)
    run = running(store)
    kept = copy(server)
    store.commit([append(run, b"1", change=End(State.COMPLETED))])
    set_back(server, kept)
    assert row(store).state is State.RUNNING
    stranded = Stranded(store, "s1", 3000)
    for now_ms in (1, 2):
        stranded.check(set(), now_ms)
    assert row(store).state is State.CHECKPOINTED
    with pytest.raises(Corrupt, match="lost acknowledged writes"):
        store.load_journal(run.id)
    store.close()


def test_nothing_is_born_as_anybodys_while_workers_are_awaited(server: ValkeyServer) -> None:
    store, other = RedisStore(server.url), RedisStore(server.url)
    for one, name in ((store, "s1"), (other, "s2")):
        one.register_session(new_session(name, agents=("helper",), lease_ms=1_000_000))
    server.kill()
    server.start()
    store.create_runs([new_run("r1")], session="s1")
    assert (row(store).state, row(store).session) == ("pending", None)
    assert other.read_run("r1") is not None  # the last one has come
    store.create_runs([new_run("r2")], session="s1")
    assert (row(store, "r2").state, row(store, "r2").session) == ("running", "s1")
    store.close()
    other.close()


def test_an_owner_that_goes_on_from_where_it_was_proves_that_nothing_is_missing(server: ValkeyServer) -> None:
    store, other = RedisStore(server.url), RedisStore(server.url)
    run = running(store)
    kept = copy(server)
    other.put_blobs([b"lost"])  # by the other alone
    other.send_signal(run.id, "go", b"")
    set_back(server, kept)
    assert other.read_run(run.id) is not None
    with pytest.raises(Corrupt):
        other.load_journal(run.id)
    (verdict,) = store.commit([append(run, b"1")])
    assert verdict.outcome is Outcome.COMMITTED
    assert other.load_journal(run.id).run.length == run.length + 1
    store.close()
    other.close()


def test_a_loss_is_known_to_who_comes_late(server: ValkeyServer) -> None:
    late, early = RedisStore(server.url), RedisStore(server.url)
    run = running(late)
    kept = copy(server)
    late.commit([append(run, b"1")])
    set_back(server, kept)
    for number in range(5):  # the count of writes has long caught up
        early.send_signal(run.id, "go", b"", id=str(number))
    assert late.read_run(run.id) is not None
    with pytest.raises(Corrupt, match="lost acknowledged writes"):
        early.load_journal(run.id)
    late.close()
    early.close()


def test_nothing_is_claimed_before_every_worker_has_come_back_or_is_gone(server: ValkeyServer) -> None:
    first, second = RedisStore(server.url), RedisStore(server.url)
    first.create_runs([new_run("r1"), new_run("r2")])
    for store, name, lease_ms in ((first, "s1", 1_000_000), (second, "s2", 1_000_000)):
        store.register_session(new_session(name, agents=("helper",), lease_ms=lease_ms))
    server.kill()
    server.start()
    held = first.claim_runs("s1", 1, AGENTS_WANTED)
    assert (held.runs, held.is_held) == ((), True)  # due, so nobody may think that there is nothing to do
    assert first.claim_runs("s1", 1, AGENTS_WANTED, only="r1").runs == ()
    assert second.read_run("r1") is not None
    given = first.claim_runs("s1", 1, AGENTS_WANTED)
    assert ([run.id for run in given.runs], given.is_held) == (["r1"], False)
    server.kill()
    server.start()
    assert first.claim_runs("s1", 1, AGENTS_WANTED).runs == ()
    first.end_sessions(["s2"], Cause.DIED)
    assert [run.id for run in first.claim_runs("s1", 1, AGENTS_WANTED).runs] == ["r2"]
    first.close()
    second.close()


def test_a_key_whose_reservation_was_lost_is_in_doubt_and_not_free(server: ValkeyServer) -> None:
    store = RedisStore(server.url)
    run = running(store)
    kept = copy(server)
    done = [reserve("paid", resumable=False), reserve("looked up")]
    store.commit([append(run, b"1", keys=done)])
    store.commit([append(row(store), b"2", change=End(State.COMPLETED))])
    set_back(server, kept)
    keys = store.read_keys(["paid", "looked up"])
    assert {name: key.state for name, key in keys.items()} == {"paid": KeyState.ORPHANED}
    store.close()


def test_an_action_whose_intent_was_lost_is_not_done_again(server: ValkeyServer, tmp_path: Path) -> None:
    scene = Scene(f"{server.url}?prefix=failover", tmp_path)
    store = RedisStore(scene.url)
    try:
        start_one(scene.url, "r")
        kept = copy(server)
        scene.begin("up", AGENTS, "--processes", "1", "--lease", "3")
        until(lambda: scene.lines()["paid r"] == 1)
        set_back(server, kept)
        until(lambda: any(item.kind is ItemKind.DAMAGE for item in store.list_inbox()))
        assert scene.lines()["paid r"] == 1
        assert row(store, "r").state is State.ESCALATED
    finally:
        scene.end()
        store.close()
