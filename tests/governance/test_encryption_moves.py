"""What a store does itself with encrypted runs: it holds them back, doubts their starts, and moves them."""

from __future__ import annotations

from pathlib import Path

import pytest

import ninelives as nl
from ninelives.core.model.capsule import Capsule
from ninelives.core.model.document import ENCRYPTION
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Kind, State
from ninelives.governance.audit_log.entries import switch
from ninelives.governance.audit_log.follower import catch_up
from ninelives.ops.transfer.importing import is_held
from ninelives.ops.transfer.moving import move
from ninelives.stores.encrypted.encrypted_store import EncryptedStore
from ninelives.stores.encrypted.keys import KeyRing
from ninelives.stores.encrypted.marker import mark_if_encrypted
from ninelives.stores.open import encrypted, open_store
from tests.governance.audit_scene import of_kind
from tests.governance.leaks import CANARY, CORE, contents, leaked
from tests.governance.test_encryption_keys import FIRST, declare, on_loop, text, work
from tests.replay.lifetimes import QuickStore


@on_loop
async def test_an_open_start_is_in_doubt_in_a_copy_and_is_settled_there_with_the_key() -> None:
    began: list[str] = []

    @nl.action(resumable=False)
    async def send(what: str) -> str:
        began.append(what)
        raise ConnectionResetError(f"lost {CANARY}")

    @nl.agent
    async def sending(what: str) -> str:
        return await send(what)

    source, target = QuickStore(), QuickStore()
    name = sending.__ninelives__.name  # type: ignore[attr-defined]
    async with nl.Runtime(source, encrypt=text(FIRST)) as rt:
        await rt.start(name, f"mail {CANARY}", id="run")
        await rt.work(until_idle=True)
    assert began == [f"mail {CANARY}"]
    capsule = _started(source)
    # Without a key: the store reads what it needs, and nothing of users.
    mark_if_encrypted(target, [capsule])
    (imported,) = target.import_runs([capsule])
    assert is_held(imported)
    assert len(imported.doubts) == 1
    found = target.load_journal("run", since=0)
    bodies = [*(one.body for one in found.records), *(one.body for one in found.items)]
    assert leaked([("copy", b"".join(bodies))]) == []
    with pytest.raises(nl.UsageError, match="is encrypted"):
        async with nl.Runtime(encrypted(target)):
            pass
    # With it: the doubt that the import wrote opens, with the arguments of the start.
    opened = EncryptedStore(target, KeyRing([FIRST])).load_journal("run", since=0)
    assert opened.records[-1].kind is Kind.DOUBT
    assert CORE.encode() in opened.records[-1].body
    async with nl.Runtime(target, encrypt=text(FIRST)) as rt:
        run = await rt.get("run")
        await run.resume()
        (item,) = await rt.inbox("run")
        assert item.kind is ItemKind.DOUBT
        await item.settle(happened=True, result="sent", by="ada")
        await rt.work(until_idle=True)
        assert await run.result() == "sent"
    assert len(began) == 1


def _started(store: QuickStore) -> Capsule:
    """Return the run as a copy would be that was made while the action was under way."""
    from msgspec.structs import replace

    capsule = store.export_run("run")
    at = next(one.seq for one in capsule.records if one.kind is Kind.INTENT)
    kept = capsule.records[: at + 1]
    row = replace(
        capsule.run,
        state=State.CHECKPOINTED,
        length=at + 1,
        head=kept[-1].check,
        effect_length=at + 1,
        due_ms=0,
        waits="",
    )
    return replace(capsule, run=row, records=kept, items=())


@on_loop
async def test_a_run_moves_encrypted_to_a_store_that_has_no_key_yet(tmp_path: Path) -> None:
    _, did = declare()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    here, there = f"sqlite:///{tmp_path / 'a' / 'runs.db'}", f"sqlite:///{tmp_path / 'b' / 'runs.db'}"
    await work(here, FIRST, start="run")
    source, target = open_store(here), open_store(there)
    move(source, target, ["run"])
    assert [one.name for one in target.read_documents(ENCRYPTION)] == [ENCRYPTION]
    source.close()
    target.close()
    assert leaked(contents(tmp_path / "a")) == leaked(contents(tmp_path / "b")) == []
    await work(there, FIRST, signal="run")
    async with nl.Runtime(there, encrypt=text(FIRST)) as rt:
        assert await (await rt.get("run")).result() == [
            f"before {CANARY}",
            f"gone {CANARY}",
            f"after {CANARY}",
        ]
    assert did == ["before", "after"]


@on_loop
async def test_a_fork_is_sealed_for_itself_and_has_what_its_origin_had() -> None:
    _, did = declare()
    store = QuickStore()
    await work(store, FIRST, start="run", signal="run")
    async with nl.Runtime(store, encrypt=text(FIRST)) as rt:
        run = await rt.get("run")
        forked = await run.fork(at="receive:go[0]", id="forked")
        await forked.signal("go", f"again {CANARY}")
        await rt.work(until_idle=True)
        assert await forked.result() == [f"before {CANARY}", f"again {CANARY}", f"after {CANARY}"]
    bodies = [one.body for one in store.load_journal("forked", since=0).records]
    assert leaked([("fork", b"".join(bodies))]) == []
    assert did == ["before", "after", "after"]


@on_loop
async def test_notices_are_sealed_and_other_documents_are_as_they_were() -> None:
    below = QuickStore()
    store = EncryptedStore(below, KeyRing([FIRST]))
    body = f'{{"text":"{CORE}"}}'.encode()
    written = store.write_document("notify/out/mail/1", body, version=0)
    assert written is not None
    assert written.body == body
    # A write that is repeated changes nothing, as without encryption.
    again = store.write_document("notify/out/mail/1", body, version=0)
    assert again == written
    store.write_document("audit/cursor", b'{"at":1}', version=0)
    assert [one.body for one in store.read_documents("notify/")] == [body]
    stored = {one.name: one.body for one in below.read_documents()}
    assert stored["audit/cursor"] == b'{"at":1}'
    assert leaked([("documents", b"".join(stored.values()))]) == []


@on_loop
async def test_the_audit_log_of_an_encrypted_store_has_nothing_that_people_said() -> None:
    @nl.agent
    async def asking() -> str:
        return await nl.ask(f"what of {CANARY}?")

    below = QuickStore()
    switch(below, on=True)
    async with nl.Runtime(below, encrypt=text(FIRST)) as rt:
        run = await rt.start(asking, id="run")
        await rt.work(until_idle=True)
        (item,) = await rt.inbox()
        await item.answer(CANARY, by="ada", note=f"because {CANARY}")
        await rt.work(until_idle=True)
        assert await run.result() == CANARY
    # The same with the key and without it: the log has digests of what is stored.
    assert catch_up(EncryptedStore(below, KeyRing([FIRST]))) > 0
    assert catch_up(EncryptedStore(below, KeyRing([]))) == 0
    (answer,) = of_kind(below, "answered")
    assert (answer["by"], answer["says"]) == ("ada", "value")
    assert leaked([(one.name, one.body) for one in below.read_documents()]) == []
