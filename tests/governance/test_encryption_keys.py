"""Keys come and go, and sealed values stay where they belong: the rules of encryption, one by one."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import ninelives as nl
from ninelives.core.journal import chain
from ninelives.core.model.document import ENCRYPTION
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Kind, Record, State
from ninelives.core.values.codec import UNTYPED_CODEC, codec_for
from ninelives.core.values.exceptions import read_failure
from ninelives.stores.encrypted.bodies import Cipher
from ninelives.stores.encrypted.encrypted_store import EncryptedStore
from ninelives.stores.encrypted.keys import KeyRing, key_id, ring_of
from ninelives.stores.memory import MemoryStore
from ninelives.stores.open import open_store
from tests.contract.makers import new_run
from tests.governance.leaks import CANARY, CORE, leaked
from tests.replay.lifetimes import QuickStore, run_async

FIRST, SECOND = (bytes([one]) * 32 for one in (1, 2))


def text(*keys: bytes) -> str:
    """Return keys as they stand in the environment."""
    return ",".join(base64.b64encode(key).decode() for key in keys)


def on_loop(test: Any) -> Any:
    """Run a test that is a coroutine."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_async(lambda: test(*args, **kwargs))

    return run


@pytest.fixture
def below() -> Iterator[MemoryStore]:
    """Yield a store that keeps what it is given."""
    store = QuickStore()
    yield store
    store.close()


def declare() -> tuple[Any, Any]:
    """Declare an agent that waits for a signal between two steps; return it and what its step did."""
    did: list[str] = []

    @nl.action
    async def step(word: str) -> str:
        did.append(word)
        return f"{word} {CANARY}"

    @nl.agent
    async def waiting(word: str) -> list[str]:
        return [await step(word), await nl.receive("go", type=str), await step("after")]

    return waiting, did


async def work(store: Any, *keys: bytes, start: str = "", signal: str = "") -> None:
    """Work with keys until nothing can go on; start a run, or signal one, before."""
    async with nl.Runtime(store, encrypt=text(*keys)) as rt:
        if start:
            await rt.start("declare.waiting", "before", id=start)
        if signal:
            await (await rt.get(signal)).signal("go", f"gone {CANARY}", id="once")
        await rt.work(until_idle=True)


@on_loop
async def test_keys_rotate_and_a_run_without_its_key_waits_while_others_go_on(below: MemoryStore) -> None:
    _, did = declare()
    await work(below, FIRST, start="old")
    assert did == ["before"]
    # The newest key writes, both are read; a signal that is repeated after the rotation is the same one.
    await work(below, FIRST, start="older", signal="older")
    await work(below, SECOND, FIRST, start="new", signal="older")
    assert _state(below, "older") is State.COMPLETED
    assert key_id(SECOND).encode() in below.load_journal("new", since=0).records[0].body
    assert key_id(FIRST).encode() in below.load_journal("older", since=0).records[1].body
    # With the newest alone, the run of the old key does nothing and waits for a person; the other goes on.
    done = len(did)
    await work(below, SECOND, signal="new")
    async with nl.Runtime(below, encrypt=text(SECOND)) as rt:
        await (await rt.get("old")).signal("go", CANARY)
        await rt.work(until_idle=True)
        (item,) = await rt.inbox("old")
    assert _state(below, "new") is State.COMPLETED
    assert did[done:] == ["after"]
    assert _state(below, "old") is State.ESCALATED
    assert item.kind is ItemKind.DAMAGE
    assert f"is encrypted with the key {key_id(FIRST)}" in item.asked.what
    assert "$NINELIVES_KEYS" in item.asked.remedy
    # The key is back.
    async with nl.Runtime(below, encrypt=text(SECOND, FIRST)) as rt:
        (item,) = await rt.inbox("old")
        await item.retry(by="ada")
        await rt.work(until_idle=True)
        assert await (await rt.get("old")).result() == [f"before {CANARY}", CANARY, f"after {CANARY}"]


def _state(store: MemoryStore, run: str) -> State:
    row = store.read_run(run)
    assert row is not None
    return row.state


@on_loop
async def test_a_store_that_is_encrypted_is_never_written_in_plain_text(below: MemoryStore) -> None:
    declare()
    await work(below, FIRST, start="run")
    for keys in ((), (SECOND,)):
        store = EncryptedStore(below, KeyRing(keys))
        before = below.load_journal("run", since=0)
        writes: list[Callable[[], object]] = [
            partial(store.create_runs, [new_run("other")]),
            partial(store.send_signal, "run", "go", b'"x"'),
            partial(store.put_blobs, [b'"x"']),
            partial(store.write_document, "notify/x", b'"x"', version=0),
        ]
        for write in writes:
            with pytest.raises(nl.UsageError, match=f"encrypted with the key {key_id(FIRST)}"):
                write()
        with pytest.raises(nl.KeyMissing, match="'run'"):
            store.load_journal("run")
        assert [row.id for row in store.list_runs(_all())] == ["run"]
        assert below.load_journal("run", since=0) == before
    with pytest.raises(nl.UsageError, match="is encrypted"):
        async with nl.Runtime(EncryptedStore(below, KeyRing([]))):
            pass


def _all() -> Any:
    from ninelives.core.model.run import RunQuery

    return RunQuery()


@pytest.mark.parametrize(
    "moved", ["to another run", "to another record", "to another step", "to another kind"]
)
@on_loop
async def test_a_sealed_body_opens_only_where_it_belongs(below: MemoryStore, moved: str) -> None:
    declare()
    await work(below, FIRST, start="one")
    await work(below, FIRST, start="two", signal="two")
    cipher = Cipher(KeyRing([FIRST]))
    here, there = below.load_journal("one", since=0), below.load_journal("two", since=0)
    kept = next(one for one in here.records if one.kind is Kind.RESULT)
    assert CORE.encode() in cipher.open_record("one", kept).body
    run, record = "one", kept
    if moved == "to another run":
        run, record = "two", replace(there.records[kept.seq], body=kept.body)
    elif moved == "to another record":
        record = replace(kept, seq=kept.seq + 5)
    elif moved == "to another step":
        record = replace(kept, step="#step#7")
    else:
        record = replace(kept, kind=Kind.WITHDRAWN)
    # Whoever can write to the store can chain the record again: the chain alone would not notice.
    sealed = chain.sealed(record.seq, here.run.base_check, chain.draft_of(record), 1)
    with pytest.raises(nl.KeyMissing, match=f"record {record.seq}"):
        cipher.open_record(run, sealed)
    flipped = kept.body.replace(b"A", b"B", 1) if b"A" in kept.body else kept.body.replace(b"b", b"c", 1)
    with pytest.raises(nl.KeyMissing):
        cipher.open_record("one", replace(kept, body=flipped))


@on_loop
async def test_what_is_sealed_is_refused_by_code_that_does_not_know_of_it(below: MemoryStore) -> None:
    declare()
    await work(below, FIRST, start="run", signal="run")
    from ninelives.core.journal.replay import read_body

    results = [one for one in below.load_journal("run", since=0).records if one.kind is Kind.RESULT]
    for record in results:
        value = bytes(read_body(record).v)  # type: ignore[arg-type]
        for codec in (UNTYPED_CODEC, codec_for(str), codec_for(dict[str, str]), codec_for(list[int])):
            with pytest.raises((nl.Corrupt, nl.Divergence)):
                codec.recall(value)
    failure = Record(
        3, Kind.FAILURE, "#x#0", 0, b'{"e":{"name":"E","message":"m","reason":"r","home":"other"}}'
    )
    sealed = Cipher(KeyRing([FIRST]))._body("run", failure)
    with pytest.raises(nl.Corrupt):
        read_failure(bytes(read_body(replace(failure, body=sealed)).e))  # type: ignore[arg-type]


def test_every_kind_of_body_comes_back_byte_for_byte() -> None:
    cipher = Cipher(KeyRing([FIRST]))
    body = {kind: f'{{"x": "{CORE}" ,"item":"i"}}'.encode() for kind in Kind}
    body[Kind.ANSWER] = (
        f'{{"item":"i","kind":"question","by":"a","at_ms":1,"answer":{{"says":"value","value":"{CORE}"}}}}'.encode()
    )
    body[Kind.SIGNAL] = f'{{"a":{{"signal number":"7"}},"v":"{CORE}"}}'.encode()
    for kind in Kind:
        record = Record(4, kind, "#x#0", 0, body[kind])
        sealed = replace(record, body=cipher._body("run", record))
        assert cipher.open_record("run", sealed) == record
        assert cipher._body("run", sealed) == sealed.body
        if kind not in (Kind.SUPERSEDED, Kind.RELEASED, Kind.SALVAGED):
            assert leaked([(kind.value, sealed.body)]) == []


def test_keys_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    for bad, said in (
        ("zz", "not base64"),
        (text(b"short"), "32 bytes"),
        ("", "32 bytes"),
        ([b"x"], "32 bytes"),
    ):
        with pytest.raises(nl.UsageError, match=said):
            ring_of(bad)
    with pytest.raises(nl.UsageError, match="NINELIVES_KEYS"):
        ring_of(True, {})
    ring = ring_of(None, {"NINELIVES_KEYS": f" {text(SECOND)} , {text(FIRST)} "})
    assert ring is not None
    assert ring.ids == (key_id(SECOND), key_id(FIRST))
    assert repr(FIRST) not in repr(ring)
    assert ring_of(lambda: [FIRST]).ids == (key_id(FIRST),)  # type: ignore[union-attr]
    assert ring_of(False, {"NINELIVES_KEY": text(FIRST)}) is None
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    store = open_store(url)
    assert store.read_documents(ENCRYPTION) == []
    assert type(store).__name__ == "SqliteStore"
    store.close()
    # Keys in the environment of a command that only looks do not mark a store.
    store = open_store(url, encrypt=text(FIRST))
    assert store.list_runs(_all()) == []
    assert store.read_documents(ENCRYPTION) == []
    store.close()
