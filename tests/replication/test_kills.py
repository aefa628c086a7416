"""Killed before and after every write: to the bucket by a replicator, to the store by a restore."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ninelives.core.model.run import RunQuery
from ninelives.ops.replication import term
from ninelives.ops.replication.bucket import Bucket
from ninelives.ops.replication.directory_bucket import DirectoryBucket
from ninelives.ops.replication.folding import choose, fold
from ninelives.ops.replication.restoring import restore
from ninelives.stores.open import open_store
from tests.contract.makers import AnyStore, new_run
from tests.replication.conftest import copied

_MOST = 200


class Killed(BaseException):
    """The process is gone: nothing may be done about it."""


class Deadly:
    """Calls another object, and is killed before or after its n-th write."""

    def __init__(self, kept: Any, writes: Iterable[str], at: int, *, is_after: bool) -> None:
        self._kept, self._writes = kept, frozenset(writes)
        self._at, self._is_after, self.count = at, is_after, 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._kept, name)
        if name not in self._writes:
            return found

        def called(*args: Any, **named: Any) -> Any:
            self.count += 1
            if self.count == self._at and not self._is_after:
                raise Killed
            answer = found(*args, **named)
            if self.count == self._at:
                raise Killed
            return answer

        return called


@pytest.mark.parametrize("is_after", [False, True])
def test_a_replicator_killed_at_every_write_leaves_a_chain_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_after: bool
) -> None:
    monkeypatch.setattr(term, "LAPSE_MS", 0)  # we are the dead owner's process ourselves
    live: AnyStore = open_store(f"sqlite:///{tmp_path}/live.db")
    writes = ("create", "replace", "write", "remove")
    bucket: Bucket = DirectoryBucket(str(tmp_path / "bucket"))
    number = 0
    for at in range(1, _MOST):
        for _ in range(2):
            number += 1
            live.create_runs([new_run(f"r{number}")])
        deadly: Any = Deadly(bucket, writes, at, is_after=is_after)
        try:
            copied(live, deadly, snapshot_ms=0, keep_ms=0)
        except Killed:
            live.create_runs([new_run(f"late{number}")])
            copied(live, bucket, snapshot_ms=0, keep_ms=0)
            there = {run.id for run in live.list_runs(RunQuery(limit=10_000))}
            assert set(fold(bucket, choose(bucket, None)).capsules) == there
            continue
        if deadly.count < at:  # else that write was refused, as the probe wants it
            assert at > 8
            break
    else:
        pytest.fail("it never came to its end")
    live.close()


@pytest.mark.parametrize("is_after", [False, True])
def test_a_restore_killed_at_every_write_is_continued(tmp_path: Path, is_after: bool) -> None:
    live: AnyStore = open_store(f"sqlite:///{tmp_path}/live.db")
    live.create_runs([new_run(f"r{number}") for number in range(120)])
    live.write_document("a/fact", b"1", version=0)
    bucket: Bucket = DirectoryBucket(str(tmp_path / "bucket"))
    copied(live, bucket)
    writes = ("write_document", "import_keys", "put_blobs", "import_runs")
    for at in range(1, _MOST):
        target: AnyStore = open_store(f"sqlite:///{tmp_path}/to-{is_after}-{at}.db")
        deadly: Any = Deadly(target, writes, at, is_after=is_after)
        try:
            restore(bucket, deadly)
            is_whole = True
        except Killed:
            is_whole = False
        unpaused = [run.id for run in target.list_runs(RunQuery(limit=1000)) if not run.paused]
        assert unpaused == []  # no worker takes a run of a half restored store
        said = restore(bucket, target)
        assert said.runs == 120
        assert len(target.list_runs(RunQuery(limit=1000))) == 120
        assert target.read_documents("a/")[0].body == b"1"
        assert target.verify() == []
        target.close()
        if is_whole:
            break
    else:
        pytest.fail("it never came to its end")
    live.close()
