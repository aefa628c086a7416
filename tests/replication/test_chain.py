"""The chain of segments: damage is found, a second replicator fenced, a store that does not fit refused."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ninelives.cli.operate.replication import stand_by
from ninelives.core.errors import Corrupt, UsageError
from ninelives.ops.replication import chain, directory_bucket, progress, term
from ninelives.ops.replication.bucket import Bucket, BucketError, BucketUnavailable, NameTaken
from ninelives.ops.replication.folding import choose, fold
from ninelives.ops.replication.opening import open_bucket, require_conditions
from ninelives.ops.replication.replicator import Options, Replicator
from ninelives.ops.status import status
from ninelives.stores import durable_files
from ninelives.stores.open import open_store
from tests.contract.makers import AnyStore, new_run
from tests.notify.scene import Scene
from tests.replication.conftest import copied, pause
from tests.replication.trials import trial
from tests.servers import s3


@pytest.fixture
def live(tmp_path: Path) -> Iterator[AnyStore]:
    """Yield an open SQLite store."""
    store: AnyStore = open_store(f"sqlite:///{tmp_path}/live.db")
    yield store
    store.close()


def test_conditions_are_kept_by_a_directory_and_by_s3(directory: Bucket, s3_url: str) -> None:
    for bucket in (directory, open_bucket(s3_url)):
        require_conditions(bucket)
        version = bucket.create("a/1", b"one")
        with pytest.raises(NameTaken):
            bucket.create("a/1", b"other")
        assert bucket.create("a/1", b"one")  # its own lost answer
        bucket.replace("a/1", b"two", version)
        assert bucket.replace("a/1", b"two", version)
        with pytest.raises(NameTaken):
            bucket.replace("a/1", b"three", version)
        bucket.create("a/2", b"x")
        assert (bucket.names("a/"), bucket.names("a/", "a/1")) == (["a/1", "a/2"], ["a/2"])
        assert (bucket.read_start("a/1", 2), bucket.read("nothing")) == (b"tw", None)
        bucket.remove(["a/1", "a/2", "nothing"])
        assert bucket.names("") == []


def test_only_the_owner_may_read_a_copy_in_a_directory(
    live: AnyStore, directory: Bucket, tmp_path: Path
) -> None:
    old = os.umask(0o022)
    try:
        copied(live, directory)
    finally:
        os.umask(old)
    found = [tmp_path / "bucket", *(tmp_path / "bucket").rglob("*")]
    assert any(one.name == "term.json" for one in found)
    assert [one for one in found if not one.name.startswith(".") and one.stat().st_mode & 0o077] == []


def test_a_disk_that_fails_after_a_segment_is_written_fences_nobody(
    live: AnyStore, directory: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(live, directory)
    seg, real, failed = tmp_path / "bucket" / "seg", durable_files.sync_directory, list[Path]()

    def sync(folder: Path) -> None:
        if folder not in failed:
            failed.append(folder)
            raise OSError(errno.EIO, "Input/output error")
        real(folder)

    monkeypatch.setattr(directory_bucket, "sync_directory", sync)
    live.create_runs([new_run("r1")])
    copied(live, directory, is_fenced=False)
    assert {seg, seg.parent} <= set(failed)
    assert set(fold(directory, choose(directory, None)).capsules) == {"r1"}


def test_drafts_of_killed_replicators_are_removed_when_they_are_old(
    live: AnyStore, directory: Bucket, tmp_path: Path
) -> None:
    copied(live, directory)
    old, new = (tmp_path / "bucket" / "seg" / f".draft-{name}" for name in ("old", "new"))
    for draft in (old, new):
        draft.write_bytes(b"half a segment")
    os.utime(old, (time.time() - 7_200,) * 2)
    live.create_runs([new_run("r1")])
    copied(live, open_bucket(directory.url))
    assert (old.exists(), new.exists()) == (False, True)


def test_a_server_that_ignores_conditions_is_refused(live: AnyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    server = s3.Rclone()
    try:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        bucket = open_bucket(s3.fresh_url())
        live.create_runs([new_run("r1")])
        with pytest.raises(UsageError, match="ignores If-None-Match and If-Match"):
            copied(live, bucket)
        copied(live, bucket, is_fenced=False)
        assert set(fold(bucket, choose(bucket, None)).capsules) == {"r1"}
    finally:
        server.remove()


def test_wrong_credentials_are_named(s3_url: str, live: AnyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(BucketError, match="AWS_SECRET_ACCESS_KEY"):
        copied(live, open_bucket(s3_url))


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "swap", "tail"])
def test_damage_in_the_bucket_is_found(
    live: AnyStore, directory: Bucket, tmp_path: Path, damage: str
) -> None:
    for number in range(4):
        live.create_runs([new_run(f"r{number}")])
        copied(live, directory)
    folder = tmp_path / "bucket" / "seg"
    names = sorted(folder.iterdir())
    victim = names[len(names) // 2]
    content = victim.read_bytes()
    if damage == "flip":
        victim.write_bytes(content[:-9] + bytes([content[-9] ^ 4]) + content[-8:])
    elif damage == "cut":
        victim.write_bytes(content[: len(content) // 2])
    elif damage == "remove":
        victim.unlink()
    elif damage == "swap":  # a whole segment of this number, from elsewhere
        other: AnyStore = open_store(f"sqlite:///{tmp_path}/other.db")
        twin = open_bucket(f"file://{tmp_path}/twin")
        for number in range(4):
            other.create_runs([new_run(f"x{number}")])
            copied(other, twin)
        shutil.copy(tmp_path / "twin" / "seg" / victim.name, victim)
        other.close()
    else:
        names[-1].unlink()
    with pytest.raises(Corrupt, match="segment"):
        fold(directory, choose(directory, None))


def test_a_second_replicator_is_fenced(live: AnyStore, directory: Bucket) -> None:
    first = Replicator(live, directory, Options(), pause, tries=3)
    first.open()
    with pytest.raises(term.Fenced, match="copies to"):
        copied(live, directory)
    first.copy()


def test_one_stands_by_with_one_line_until_the_other_is_gone(live: AnyStore, directory: Bucket) -> None:
    first = Replicator(live, directory, Options(), pause, tries=3)
    first.open()
    said, waits = list[str](), list[float]()

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 3:
            first.say_alive(is_over=True)
        return False

    second = stand_by(lambda: copied(live, directory), wait, said.append)
    assert second is not None
    assert second.is_complete
    assert waits == [term.LAPSE_MS / 1000] * 3
    (line,) = said
    assert "standing by" in line
    first = Replicator(live, directory, Options(), pause, tries=3)
    first.open()
    assert stand_by(lambda: copied(live, directory), lambda _: True, said.append) is None  # stopped


def test_one_that_cannot_begin_says_so_in_the_store(live: AnyStore, directory: Bucket) -> None:
    copied(live, directory)
    before, _ = progress.read(live, "default")
    directory.remove(directory.names("seg/"))
    replicator = Replicator(live, directory, Options(), pause, tries=3)
    with pytest.raises(UsageError, match="lost segments") as raised:
        replicator.open()
    replicator.refuse(raised.value)
    after, _ = progress.read(live, "default")
    assert before is not None
    assert after == replace(before, fault=str(raised.value), is_refused=True)
    (problem,) = _copy_problems(live)
    assert "nothing is copied to the copy default" in problem
    assert "lost segments" in problem


def test_a_bucket_that_was_never_there_is_a_problem(
    live: AnyStore, directory: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise BucketUnavailable("the bucket does not answer")

    monkeypatch.setattr(type(directory), "read", away)
    with pytest.raises(BucketUnavailable):
        Replicator(live, directory, Options(is_fenced=False), lambda _: True).open()
    assert _copy_problems(live) == ["nothing is copied to the copy default: the bucket does not answer"]
    monkeypatch.undo()
    copied(live, directory)
    assert _copy_problems(live) == []


def test_one_that_was_stopped_past_its_term_writes_nothing(
    s3_url: str, tmp_path: Path, live: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = open_bucket(s3_url)
    words = ["store", "replicate", s3_url, "--store", live.url, "--every", "1ms"]
    stopped = subprocess.Popen([sys.executable, "-m", "ninelives", *words], stderr=subprocess.PIPE)
    try:
        _until(lambda: bool(bucket.names("base/")))
        os.kill(stopped.pid, signal.SIGSTOP)
        before = chain.numbers(bucket)[-1]
        monkeypatch.setattr(term, "LAPSE_MS", 0)  # a term lapses after half a minute
        live.create_runs([new_run("r1")])
        second = copied(live, bucket)
        live.create_runs([new_run("r2")])
        os.kill(stopped.pid, signal.SIGCONT)
        _, said = stopped.communicate(timeout=60)
        assert stopped.returncode == 1, said
        assert b"Fenced" in said
        owners = {one.header.owner for one in chain.read(bucket, before + 1, chain.numbers(bucket)[-1])}
        assert owners == {second.report.owner}
    finally:
        stopped.kill()
        stopped.wait()


def test_a_store_put_back_from_an_old_copy_is_refused(tmp_path: Path, directory: Bucket) -> None:
    path = tmp_path / "live.db"
    store: AnyStore = open_store(f"sqlite:///{path}")
    store.create_runs([new_run("r1")])
    copied(store, directory)
    store.close()
    kept = tmp_path / "kept.db"
    shutil.copy(path, kept)
    store = open_store(f"sqlite:///{path}")
    store.create_runs([new_run("r2")])
    copied(store, directory)
    store.close()
    for beside in ("", "-wal", "-shm", "-anchor"):
        Path(f"{path}{beside}").unlink(missing_ok=True)
    shutil.copy(kept, path)
    store = open_store(f"sqlite:///{path}")
    with pytest.raises(UsageError, match=r"behind its copy.*'r2'"):
        copied(store, directory)
    store.close()


def test_a_store_put_back_that_lacks_only_runs_that_ended_is_refused(
    tmp_path: Path, directory: Bucket
) -> None:
    path, kept = tmp_path / "live.db", tmp_path / "kept.db"
    store: AnyStore = open_store(f"sqlite:///{path}")
    store.create_runs([new_run("open")])
    copied(store, directory)
    store.close()
    shutil.copy(path, kept)
    store = open_store(f"sqlite:///{path}")
    Scene(store).fail("ended")
    copied(store, directory)
    assert store.prune(ended_before_ms=2**52, forget_before_ms=2**52).runs == 1
    copied(store, directory)  # that it was forgotten is no loss
    store.close()
    for beside in ("", "-wal", "-shm", "-anchor"):
        Path(f"{path}{beside}").unlink(missing_ok=True)
    shutil.copy(kept, path)
    store = open_store(f"sqlite:///{path}")
    with pytest.raises(UsageError, match=r"behind its copy.*: 3 .* knows 1"):
        copied(store, directory)
    store.close()


@pytest.mark.parametrize("first", ["original", "copy"])
def test_a_live_copy_beside_its_original_is_refused(tmp_path: Path, directory: Bucket, first: str) -> None:
    """It has the same id, and as many runs: only what the store knows of the bucket tells them apart."""
    places = {"original": tmp_path / "a", "copy": tmp_path / "b"}
    places["original"].mkdir()
    store: AnyStore = open_store(f"sqlite:///{places['original']}/live.db")
    store.create_runs([new_run("r1")])
    copied(store, directory)
    store.close()
    shutil.copytree(places["original"], places["copy"])
    opened: dict[str, AnyStore] = {
        name: open_store(f"sqlite:///{place}/live.db") for name, place in places.items()
    }
    try:
        for name, one in opened.items():
            Scene(one).fail(f"of-{name}")
        second = "copy" if first == "original" else "original"
        copied(opened[first], directory)
        with pytest.raises(UsageError, match="continued from another store"):
            copied(opened[second], directory)
        copied(opened[first], directory)
        assert set(fold(directory, choose(directory, None)).capsules) == {"r1", f"of-{first}"}
    finally:
        for one in opened.values():
            one.close()


def test_a_live_copy_is_refused_though_the_same_process_went_on(tmp_path: Path, directory: Bucket) -> None:
    place, beside = tmp_path / "a", tmp_path / "b"
    place.mkdir()
    store: AnyStore = open_store(f"sqlite:///{place}/live.db")
    store.create_runs([new_run("r1")])
    made = Replicator(store, directory, Options(), pause, tries=3)
    made.open()
    made.run(is_once=True)
    shutil.copytree(place, beside)
    Scene(store).fail("r2")
    made.run(is_once=True)
    store.close()
    other: AnyStore = open_store(f"sqlite:///{beside}/live.db")
    Scene(other).fail("r3")
    with pytest.raises(UsageError, match="continued from another store"):
        copied(other, directory)
    other.close()


def test_a_segment_that_a_slow_server_writes_late_refuses_nobody(
    live: AnyStore, directory: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replicator is dead, and the next one has planned another segment of the same number."""
    live.create_runs([new_run("r1")])
    copied(live, directory)
    late: list[tuple[str, bytes]] = []
    real = directory.create

    def lost(name: str, content: bytes) -> str:
        if name.startswith("seg/"):
            late.append((name, content))
            raise BucketUnavailable("cut off")
        return real(name, content)

    monkeypatch.setattr(directory, "create", lost)
    with pytest.raises(BucketUnavailable):
        copied(live, directory)
    monkeypatch.setattr(term, "LAPSE_MS", 0)

    def arrives(name: str, content: bytes) -> str:
        if late and name.startswith("seg/"):
            real(*late.pop(0))
            late.clear()
        return real(name, content)

    monkeypatch.setattr(directory, "create", arrives)
    live.create_runs([new_run("r2")])
    copied(live, directory)
    assert set(fold(directory, choose(directory, None)).capsules) == {"r1", "r2"}


def test_a_copy_of_another_store_is_refused(tmp_path: Path, live: AnyStore, directory: Bucket) -> None:
    copied(live, directory)
    other: AnyStore = open_store(f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(UsageError, match="another store"):
        copied(other, directory)
    other.close()


def test_a_bucket_that_lost_its_end_is_refused(live: AnyStore, directory: Bucket, tmp_path: Path) -> None:
    live.create_runs([new_run("r1")])
    copied(live, directory)
    last = max((tmp_path / "bucket" / "seg").iterdir())
    last.unlink()
    with pytest.raises(UsageError, match="lost segments"):
        copied(live, directory)


def test_a_bucket_that_lost_its_beginning_is_not_added_to(
    live: AnyStore, directory: Bucket, tmp_path: Path
) -> None:
    live.create_runs([new_run("r1")])
    copied(live, directory)
    live.create_runs([new_run("r2")])
    copied(live, directory)
    min((tmp_path / "bucket" / "seg").iterdir()).unlink()
    with pytest.raises(Corrupt, match="segment 1 is missing"):
        copied(live, directory)


@pytest.mark.parametrize("field", ["first", "last"])
def test_a_mark_that_names_other_segments_is_found(
    live: AnyStore, directory: Bucket, tmp_path: Path, field: str
) -> None:
    for name in ("r1", "r2", "r3"):
        live.create_runs([new_run(name)])
        copied(live, directory)
    (mark,) = (tmp_path / "bucket" / "base").iterdir()
    base = json.loads(mark.read_bytes())
    mark.write_text(json.dumps({**base, field: base[field] + 1, "last": base["last"] + 1}))
    with pytest.raises(Corrupt, match="the mark of snapshot"):
        fold(directory, choose(directory, None))


def test_old_segments_go_and_the_newest_snapshot_stays(live: AnyStore, directory: Bucket) -> None:
    for number in range(3):
        live.create_runs([new_run(f"r{number}")])
        copied(live, directory, snapshot_ms=0, keep_ms=0)
    assert len(chain.bases(directory)) == 1
    assert set(fold(directory, choose(directory, None)).capsules) == {"r0", "r1", "r2"}


def test_it_reports_to_the_store(live: AnyStore, directory: Bucket) -> None:
    live.create_runs([new_run("r1")])
    copied(live, directory, name="nightly")
    said, _ = progress.read(live, "nightly")
    assert said is not None
    assert (said.destination, said.errors, said.fault) == (directory.url, {}, "")
    assert 0 <= said.lag_seconds < 60
    assert said.segment == chain.numbers(directory)[-1]


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_a_lost_machine_loses_no_more_than_is_stated(tmp_path: Path, seed: int) -> None:
    found = trial(s3.shared(), tmp_path, seed)
    assert found.faults == ()
    assert found.measured_seconds <= found.stated_seconds


def _copy_problems(store: Any) -> list[str]:
    return [one.text for one in status(store, store.url).problems if one.kind == "replication"]


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)
