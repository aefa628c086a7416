"""Blobs: kept once under their digests, and verified when read."""

from __future__ import annotations

from typing import Any

import pytest

from ninelives.core.errors import Corrupt, NotSerializable, UsageError
from ninelives.core.rules import run_rules
from ninelives.core.values import blobs
from tests.contract.benches import Bench
from tests.contract.makers import new_run


def test_contents_come_back_under_their_digests(bench: Bench) -> None:
    contents = [b"", b"x", bytes(range(256)) * 1000, b"0" * 1_000_000]
    digests = bench.store.put_blobs(iter(contents))
    assert digests == [blobs.digest(raw) for raw in contents]
    assert bench.store.get_blobs(reversed(digests)) == dict(zip(digests, contents, strict=True))


def test_known_contents_are_kept_once(bench: Bench) -> None:
    first = bench.store.put_blobs([b"a", b"b", b"a"])
    assert first[0] == first[2]
    assert bench.store.put_blobs([b"b", b"c"])[0] == first[1]
    assert bench.store.stats().blobs == 3


def test_nothing_put_is_nothing_kept(bench: Bench) -> None:
    assert bench.store.put_blobs([]) == []
    assert bench.store.get_blobs([]) == {}


def test_a_missing_blob_is_corrupt(bench: Bench) -> None:
    known, lost = bench.store.put_blobs([b"known", b"lost"])
    bench.lose_blob(lost)
    with pytest.raises(Corrupt):
        bench.store.get_blobs([known, lost])
    with pytest.raises(Corrupt):
        bench.store.get_blobs([b"\1" * 16])
    assert bench.store.get_blobs([known]) == {known: b"known"}


def test_a_content_that_could_not_be_read_back_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "MAX_BYTES", 1000)
    with pytest.raises(NotSerializable):
        bench.store.put_blobs([b"small", b"0" * 1001])
    assert bench.store.stats().blobs == 0
    (digest,) = bench.store.put_blobs([b"0" * 1000])
    assert bench.store.get_blobs([digest]) == {digest: b"0" * 1000}


def test_a_new_run_may_only_refer_to_blobs_that_exist(bench: Bench) -> None:
    (digest,) = bench.store.put_blobs([b"large"])
    bad, good = bench.store.create_runs(
        [new_run("bad", body=b"", blobs=(digest, b"\1" * 16)), new_run("good", body=b"", blobs=(digest,))]
    )
    assert isinstance(bad, UsageError)
    assert bench.store.read_run("bad") is None
    assert not isinstance(good, UsageError)
    assert good.number == 1
    assert bench.store.load_journal("good").records[0].blobs == (digest,)


def test_another_store_object_reads_the_blob(bench: Bench) -> None:
    (digest,) = bench.store.put_blobs([b"shared"])
    assert bench.reopen().get_blobs([digest]) == {digest: b"shared"}


def test_a_known_blob_that_is_swept_before_it_is_touched_is_kept_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = bench.store.put_blobs([b"swept", b"too"])
    store: Any = bench.store
    peek = store._peek

    def sweep_after(work: Any) -> Any:
        known = peek(work)
        assert set(known) == set(digests)
        bench.clock.advance(2 * run_rules.BLOB_GRACE_MS)
        assert bench.store.prune(ended_before_ms=0).blobs == 2
        return known

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(store, "_peek", sweep_after)
        assert bench.store.put_blobs([b"swept", b"too"]) == digests
    assert bench.store.get_blobs(digests) == dict(zip(digests, [b"swept", b"too"], strict=True))
