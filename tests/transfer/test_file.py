"""The file of an export: what is read is what was written, and nothing else is accepted."""

from __future__ import annotations

import gzip
import io
import resource
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest

from ninelives.cli.operate.transfer import move
from ninelives.core.errors import BadFile, NineLivesError, UsageError
from ninelives.core.model.capsule import Capsule
from ninelives.core.model.run import Kind
from ninelives.ops.transfer import file
from ninelives.ops.transfer.export import export, header_of, parts
from ninelives.ops.transfer.file import BlobLine, Reader
from ninelives.stores.store_id import store_id
from tests.clocks import SteppingClock
from tests.contract.benches import Bench, make_bench
from tests.contract.makers import new_item, reserve

MUTATIONS = 3_000


def filled() -> Bench:
    """Return a store with a few runs that have one of everything."""
    bench = make_bench("memory", SteppingClock(), Path())
    (digest,) = bench.store.put_blobs([b"large" * 2000])
    for name in ("r1", "r2", "r3"):
        bench.store.send_signal(bench.running(name, blobs=(digest,)).id, "go", b"1", id="a")
        run = bench.write(bench.row(name), b"x", kind=Kind.SIGNAL, takes=[1])
        bench.write(run, b"y", opens=[new_item(f"i-{name}")], keys=[reserve(f"k-{name}")])
    return bench


def written(bench: Bench) -> bytes:
    """Return the file of all runs."""
    target = io.BytesIO()
    file.write(target, header_of(bench.store), parts(bench.store, ["r1", "r2", "r3"], set()))
    return target.getvalue()


def read(raw: bytes) -> list[BlobLine | Capsule]:
    """Return all parts of a file, which must be sound."""
    reader = Reader(io.BytesIO(raw), "it", len(raw))
    found = list(reader.parts())
    assert reader.footer is not None
    return found


def test_what_is_read_is_what_was_written() -> None:
    bench = filled()
    raw = written(bench)
    assert raw == written(bench)
    found = read(raw)
    assert [one for one in found if isinstance(one, Capsule)] == [
        bench.store.export_run(run) for run in ("r1", "r2", "r3")
    ]
    (blob,) = [one for one in found if isinstance(one, BlobLine)]
    assert blob.content == b"large" * 2000
    header = Reader(io.BytesIO(raw), "it", len(raw)).header
    assert header.store == store_id(bench.store)


def test_a_file_is_written_whole_and_never_over_another(tmp_path: Path) -> None:
    bench = filled()
    target = tmp_path / "runs.nlx"
    assert export(bench.store, ["r1", "r2"], target).runs == 2
    assert target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="exists"):
        export(bench.store, ["r1"], target)
    with pytest.raises(UsageError, match="no such run"):
        export(bench.store, ["nobody"], tmp_path / "other.nlx")
    with pytest.raises(UsageError, match="cannot be written"):
        export(bench.store, ["r1"], tmp_path / "missing" / "runs.nlx")
    assert [path.name for path in tmp_path.iterdir()] == ["runs.nlx"]


def test_a_full_disk_is_named_with_its_remedy_and_leaves_no_file(tmp_path: Path) -> None:
    bench = filled()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(UsageError, match=r"cannot be written.*Free space"):
            export(bench.store, ["r1", "r2"], tmp_path / "runs.nlx")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_move_back_without_a_target_names_both_ways() -> None:
    for back, is_named in ((True, True), (False, False)):
        with pytest.raises(UsageError, match="needs a target") as caught:
            move("memory:", ["r1"], "", back=back, gone=False, as_json=False)
        assert ("--never-arrived" in str(caught.value)) is is_named


def test_every_cut_is_refused() -> None:
    raw = written(filled())
    plain = gzip.decompress(raw)
    lines = plain.splitlines(keepends=True)
    for count in range(len(lines)):
        with pytest.raises(BadFile):
            read(gzip.compress(b"".join(lines[:count])))
    for size in range(0, len(raw), 7):
        with pytest.raises(BadFile):
            read(raw[:size])
    with pytest.raises(BadFile, match="follows"):
        read(gzip.compress(plain + b"\n"))


def test_no_random_change_is_accepted() -> None:
    raw = written(filled())
    plain, rng = gzip.decompress(raw), Random(18)
    expected = read(raw)
    for number in range(MUTATIONS):
        changed = mutated(plain, rng)
        try:
            found = read(gzip.compress(changed, 1))
        except NineLivesError:
            continue
        assert found == expected, f"mutation {number} was accepted"


def test_no_random_change_that_is_sealed_again_gets_past_the_checks() -> None:
    """One that knows the format may write other runs, but none that a store could not have written."""
    plain, rng = gzip.decompress(written(filled())), Random(19)
    accepted = 0
    for _ in range(MUTATIONS):
        body = mutated(plain[: plain.rindex(b"\n", 0, -1) + 1], rng)
        lines, runs = body.count(b"\n"), body.count(b'{"line":"run"')
        end = b'{"line":"end","lines":%d,"runs":%d,"sha256":"%b"}\n'
        sealed = body + end % (lines, runs, sha256(body).hexdigest().encode())
        target = make_bench("memory", SteppingClock(), Path())
        try:
            found = read(gzip.compress(sealed, 1))
            target.store.put_blobs(one.content for one in found if isinstance(one, BlobLine))
            target.store.import_runs([one for one in found if isinstance(one, Capsule)])
        except NineLivesError:
            continue
        accepted += 1
        assert target.store.verify() == []
    assert accepted < MUTATIONS / 2


def mutated(raw: bytes, rng: Random) -> bytes:
    """Return bytes with some of them changed, removed, doubled or moved."""
    made = bytearray(raw)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at, size = rng.randrange(len(made)), rng.choice([1, 1, 2, 8, 100])
        match rng.randrange(5):
            case 0:
                made[at] ^= 1 << rng.randrange(8)
            case 1:
                del made[at : at + size]
            case 2:
                made[at:at] = made[at : at + size]
            case 3:
                made[at : at + 1] = rng.choice([b"9", b"-", b'"', b"{", b"\n", b"\0", b"1e9", b"null"])
            case _:
                lines = bytes(made).splitlines(keepends=True)
                first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
                lines[first], lines[second] = lines[second], lines[first]
                made = bytearray(b"".join(lines))
    return bytes(made)


def test_a_bomb_and_a_long_line_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    header = gzip.decompress(written(filled())).splitlines(keepends=True)[0]
    monkeypatch.setattr(file, "FREE_BYTES", 1024 * 1024)
    many = gzip.compress(header + b'{"line":"blob","digest":"","content":""}\n' * 100_000)
    with pytest.raises(BadFile):
        read(many)
    monkeypatch.setattr(file, "LINE_BYTES", 64 * 1024)
    with pytest.raises(BadFile, match="too long"):
        read(gzip.compress(header + b"x" * 200_000 + b"\n"))
    monkeypatch.setattr(file, "LINE_BYTES", 96 * 1024 * 1024)
    with pytest.raises(BadFile, match="unpacks to more"):
        read(gzip.compress(header + b"x" * 50_000_000 + b"\n"))


@pytest.mark.parametrize(
    "raw",
    # A time in the header would give the test another name in each process.
    [b"", b"text", gzip.compress(b"", mtime=0), gzip.compress(b"{}\n", mtime=0), b"\x1f\x8b"],
    ids=["empty", "text", "nothing packed", "no header", "cut"],
)
def test_what_is_no_export_is_refused(raw: bytes) -> None:
    with pytest.raises(BadFile, match="it is refused"):
        read(raw)


def test_another_version_is_refused() -> None:
    plain = gzip.decompress(written(filled()))
    with pytest.raises(BadFile, match="version 2"):
        read(gzip.compress(plain.replace(b'"version":1', b'"version":2', 1)))
