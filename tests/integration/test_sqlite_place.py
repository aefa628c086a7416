"""Where a database may be: local, ours, writable, for us alone. Everything else is refused in clear words."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from ninelives.core.errors import Corrupt, NineLivesError, StoreBroken, StoreUnavailable, StoreUnsafe
from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.files import paths
from tests.contract.makers import new_run, new_session
from tests.integration.conftest import Opener, Starter

NOBODY = 65534
LOCAL = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw"


def mount(point: str, kind: str, options: str = "rw") -> str:
    return f"90 22 0:44 / {point} {options} shared:7 master:2 - {kind} server:/export {options}"


def refused(error: BaseException, *, names: Path) -> None:
    """Check that an error says where and what to do."""
    assert isinstance(error, NineLivesError)
    assert str(names) in error.what
    assert error.remedy


@pytest.fixture
def public() -> Iterator[Path]:
    """Yield a directory that every user may enter (pytest's own is for root alone)."""
    made = Path(tempfile.mkdtemp(prefix="ninelives-test-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


# Remote filesystems ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs"])
def test_a_remote_filesystem_is_refused(kind: str) -> None:
    with pytest.raises(StoreUnsafe) as caught:
        paths.refuse_remote(Path("/mnt/share/runs.db"), [LOCAL, mount("/mnt/share", kind)])
    refused(caught.value, names=Path("/mnt/share/runs.db"))
    assert kind in caught.value.what
    assert "PostgreSQL" in str(caught.value.remedy)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs"])
def test_a_local_filesystem_is_not(kind: str) -> None:
    paths.refuse_remote(Path("/mnt/disk/runs.db"), [LOCAL, mount("/mnt/disk", kind)])


@pytest.mark.parametrize(
    ("point", "path"),
    [
        (r"/mnt/my\040share", "/mnt/my share/runs.db"),
        (r"/mnt/a\011tab", "/mnt/a\ttab/runs.db"),
        (r"/mnt/back\134slash", "/mnt/back\\slash/runs.db"),
        (r"/mnt/back\134040", "/mnt/back\\040/runs.db"),
        (r"/mnt/hash\043", "/mnt/hash#/runs.db"),
        ("/mnt/döner", "/mnt/döner/runs.db"),
        (r"/mnt/日\040本", "/mnt/日 本/runs.db"),
    ],
)
def test_mount_points_are_read_as_the_kernel_writes_them(point: str, path: str) -> None:
    with pytest.raises(StoreUnsafe):
        paths.refuse_remote(Path(path), [LOCAL, mount(point, "nfs4")])
    paths.refuse_remote(Path("/mnt/elsewhere/runs.db"), [LOCAL, mount(point, "nfs4")])


def test_the_innermost_mount_counts() -> None:
    mounts = [LOCAL, mount("/data", "nfs"), mount("/data/local", "xfs"), mount("/data/local/deep", "cifs")]
    for order in (mounts, mounts[::-1]):
        with pytest.raises(StoreUnsafe, match="is on nfs"):
            paths.refuse_remote(Path("/data/runs.db"), order)
        paths.refuse_remote(Path("/data/local/runs.db"), order)
        with pytest.raises(StoreUnsafe, match="is on cifs"):
            paths.refuse_remote(Path("/data/local/deep/runs.db"), order)


def test_a_name_that_only_begins_like_a_mount_point_is_not_inside_it() -> None:
    paths.refuse_remote(Path("/data-local/runs.db"), [LOCAL, mount("/data", "nfs")])


def test_of_two_mounts_on_one_point_the_later_counts() -> None:
    paths.refuse_remote(Path("/data/runs.db"), [LOCAL, mount("/data", "nfs"), mount("/data", "ext4")])
    with pytest.raises(StoreUnsafe):
        paths.refuse_remote(Path("/data/runs.db"), [LOCAL, mount("/data", "ext4"), mount("/data", "nfs")])


def test_a_remote_root_is_refused() -> None:
    with pytest.raises(StoreUnsafe):
        paths.refuse_remote(Path("/runs.db"), [mount("/", "nfs4")])


def test_a_link_does_not_hide_a_remote_filesystem(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "share")
    with pytest.raises(StoreUnsafe):
        paths.refuse_remote(tmp_path / "link" / "runs.db", [LOCAL, mount(str(tmp_path / "share"), "nfs")])


def test_opening_looks_at_the_mounts_of_this_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_REMOTE", paths._REMOTE | {kind_of(path.parent)})
    with pytest.raises(StoreUnsafe, match=r"locks are not reliable"):
        SqliteStore(path)
    assert not path.exists()


def kind_of(directory: Path) -> str:
    asked = ["stat", "--file-system", "--format=%T", str(directory)]
    told = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    return {"ext2/ext3": "ext4", "overlayfs": "overlay"}.get(told, told)


# What is there already ---------------------------------------------------------------------------


def test_an_empty_file_is_refused(path: Path) -> None:
    path.touch(0o600)
    with pytest.raises(Corrupt, match="is empty") as caught:
        SqliteStore(path)
    refused(caught.value, names=path)
    assert path.stat().st_size == 0


@pytest.mark.parametrize("content", [b"x", b"no database " * 1000, b"SQLite format 3\x00", b"\x00" * 4096])
def test_what_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(Corrupt, match="not a SQLite database") as caught:
        SqliteStore(path)
    refused(caught.value, names=path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("size", [1, 50, 99])
def test_a_header_cut_short_is_refused(path: Path, size: int) -> None:
    SqliteStore(path).close()
    os.truncate(path, size)
    with pytest.raises(Corrupt) as caught:
        SqliteStore(path)
    refused(caught.value, names=path)


@pytest.mark.parametrize("size", [100, 4096, 5000])
def test_a_database_cut_short_is_refused(path: Path, size: int) -> None:
    SqliteStore(path).close()
    for beside in ("-wal", "-shm"):
        Path(f"{path}{beside}").unlink(missing_ok=True)
    os.truncate(path, size)
    with pytest.raises(Corrupt) as caught:
        SqliteStore(path)
    assert caught.value.remedy


def test_a_directory_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreUnavailable, match="directory") as caught:
        SqliteStore(path)
    refused(caught.value, names=path)


def test_a_pipe_is_refused(path: Path) -> None:
    os.mkfifo(path, 0o600)
    with pytest.raises(StoreUnavailable, match="not a file") as caught:
        SqliteStore(path)
    refused(caught.value, names=path)


def test_a_file_where_a_directory_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnsafe) as caught:
        SqliteStore(tmp_path / "file" / "runs.db")
    refused(caught.value, names=tmp_path / "file" / "runs.db")


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_the_database_of_another_program_is_refused_and_left_alone(path: Path, journal: str) -> None:
    other = apsw.Connection(str(path))
    other.pragma("journal_mode", journal)
    other.execute("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
    other.close()
    path.chmod(0o600)
    before = path.read_bytes()
    with pytest.raises(Corrupt, match="not a Nine Lives store") as caught:
        SqliteStore(path)
    refused(caught.value, names=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("place_in_header", "what"), [(68, "application id")])
def test_a_header_that_is_not_ours_is_refused(path: Path, place_in_header: int, what: str) -> None:
    SqliteStore(path).close()
    with path.open("r+b") as file:
        file.seek(place_in_header)
        file.write(b"\x00")
    with pytest.raises(Corrupt, match="not a Nine Lives store") as caught:
        SqliteStore(path)
    refused(caught.value, names=path)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606, 0o660])
def test_a_database_that_others_may_touch_is_made_private(path: Path, opened: Opener, mode: int) -> None:
    SqliteStore(path).close()
    path.chmod(mode)
    opened()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_database_that_others_may_touch_and_is_not_ours_to_change_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteStore(path).close()
    path.chmod(0o644)

    def chmod(self: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", str(self))

    monkeypatch.setattr(Path, "chmod", chmod)
    with pytest.raises(StoreUnsafe, match="0644") as caught:
        SqliteStore(path)
    refused(caught.value, names=path)
    assert caught.value.remedy == f"chmod 600 {path}"


def test_a_failed_opening_leaves_no_descriptors_behind(path: Path) -> None:
    path.touch(0o600)
    with pytest.raises(Corrupt):
        SqliteStore(path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(Corrupt):
            SqliteStore(path)
    assert len(os.listdir("/proc/self/fd")) == before


# Where we may not write --------------------------------------------------------------------------


def test_a_read_only_file_is_refused(public: Path, started: Starter) -> None:
    path = public / "runs.db"
    SqliteStore(path).close()
    for one in (public, *public.rglob("*")):
        os.chown(one, NOBODY, NOBODY)
    path.chmod(0o400)
    told = started("try_as", NOBODY, at=path).read()
    assert told.startswith("StoreUnsafe")
    assert f"{path} is read-only" in told
    assert "write access" in told


def test_a_directory_that_we_may_not_write_to_is_refused(public: Path, started: Starter) -> None:
    told = started("try_as", NOBODY, at=public / "runs.db").read()
    assert told.startswith("StoreUnsafe")
    assert str(public / "runs.db") in told
    assert "writable" in told


def test_another_users_store_is_refused(public: Path, started: Starter) -> None:
    SqliteStore(public / "runs.db").close()
    told = started("try_as", NOBODY, at=public / "runs.db").read()
    assert told.startswith("StoreUnsafe")
    assert str(public / "runs.db") in told


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "existing"])
def test_a_read_only_filesystem_is_refused(path: Path, started: Starter, *, is_there: bool) -> None:
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not have mounts of its own")
    if is_there:
        SqliteStore(path).close()
    here = path.parent
    script = f"mount --bind '{here}' '{here}' && mount -o remount,ro,bind '{here}' && exec \"$@\""
    told = started("try_as", 0, prefix=("unshare", "--mount", "sh", "-c", script, "sh")).read()
    assert told.startswith("StoreUnsafe")
    assert str(path) in told


# What we make ------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o177])
def test_files_are_for_us_alone_whatever_the_umask(tmp_path: Path, opened: Opener, umask: int) -> None:
    path = tmp_path / "made" / "deep" / "runs.db"
    before = os.umask(umask)
    try:
        store = opened(path)
        store.create_runs([new_run()])
        store.wait_for_work(0)
    finally:
        os.umask(before)
    modes = {one.name: one.stat().st_mode & 0o777 for one in path.parent.iterdir()}
    assert modes.pop("runs.db-live") == 0o700
    assert set(modes) >= {"runs.db", "runs.db-wal", "runs.db-shm", "runs.db-anchor"}
    assert set(modes.values()) == {0o600}
    inside = [one for one in (path.parent / "runs.db-live").iterdir() if one.suffix == ".lock"]
    assert {one.stat().st_mode & 0o777 for one in inside} == {0o600}
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700


def test_parent_directories_are_made(tmp_path: Path, opened: Opener) -> None:
    opened(tmp_path / "a" / "b" / "c" / "runs.db").create_runs([new_run()])


def test_making_a_database_leaves_nothing_else_behind(path: Path, opened: Opener) -> None:
    opened()
    names = {one.name for one in path.parent.iterdir()}
    assert names == {"runs.db", "runs.db-wal", "runs.db-shm", "runs.db-anchor", "runs.db-live"}


def test_what_a_killed_process_left_of_a_new_database_does_not_matter(path: Path, opened: Opener) -> None:
    for leftover in ("-new", "-new-wal", "-new-shm"):
        Path(f"{path}{leftover}").write_bytes(b"half")
    opened().create_runs([new_run()])
    assert opened().read_run("r1") is not None


@pytest.mark.parametrize(
    "name", ["läufe 実行.db", "with space.db", "100%41.db", "a?b#c.db", "'; DROP TABLE runs; --.db", "x\ny"]
)
def test_any_name_will_do(tmp_path: Path, opened: Opener, name: str) -> None:
    store = opened(tmp_path / name)
    store.create_runs([new_run()])
    assert store.wait_for_work(0)
    other = opened(tmp_path / name)
    other.wait_for_work(0)
    store.create_runs([new_run("r2")])
    assert other.wait_for_work(10)
    assert other.read_run("r2") is not None


def test_a_path_that_sqlite_cannot_take_is_refused(tmp_path: Path) -> None:
    path = tmp_path.joinpath(*["d" * 100] * 4, "n" * 200)
    with pytest.raises(StoreUnsafe, match="longer than SQLite takes") as caught:
        SqliteStore(path)
    refused(caught.value, names=path)
    assert list(tmp_path.iterdir()) == []


def test_very_long_paths_work(tmp_path: Path, opened: Opener) -> None:
    left = 495 - len(str(tmp_path))
    path = tmp_path.joinpath("d" * (left - 201), "n" * 200)
    store, other = opened(path), opened(path)
    other.wait_for_work(0)
    store.create_runs([new_run()])
    assert other.wait_for_work(10)
    assert other.read_run("r1") is not None


@pytest.mark.parametrize("length", [248, 250, 251, 255, 300])
def test_a_name_that_leaves_no_room_for_ours_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("n" * length)
    with pytest.raises(StoreUnsafe) as caught:
        SqliteStore(path)
    refused(caught.value, names=path)


def test_a_relative_path_is_where_the_process_was_when_it_opened(
    tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = opened(Path("here.db"))
    monkeypatch.chdir("/")
    store.create_runs([new_run()])
    assert store.path == tmp_path / "here.db"
    assert store.verify() == []


# Links, moves, limits, locales -------------------------------------------------------------------


def test_a_symbolic_link_to_the_database_leads_to_the_store_itself(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").mkdir()
    real, link = tmp_path / "real" / "runs.db", tmp_path / "link" / "runs.db"
    with closing(SqliteStore(real)) as store:
        store.create_runs([new_run("r")])
    link.symlink_to(real)
    with closing(SqliteStore(link)) as store, closing(SqliteStore(real)) as same:
        assert store.read_run("r") is not None
        store.create_runs([new_run("s")])
        assert same.read_run("s") is not None
    assert [one.name for one in link.parent.iterdir()] == ["runs.db"]


def test_a_link_that_leads_in_a_circle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.symlink_to(path)
    with pytest.raises(NineLivesError) as caught:
        SqliteStore(path)
    refused(caught.value, names=path)
    assert "accept-loss" not in str(caught.value)


def test_a_directory_that_is_moved_is_named_by_who_writes_next(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    path = tmp_path / "here" / "runs.db"
    with closing(SqliteStore(path)) as store:
        (tmp_path / "here").rename(tmp_path / "there")
        with pytest.raises(StoreBroken) as caught:
            store.register_session(new_session("s"))
        refused(caught.value, names=path)


def test_too_many_open_files_is_said_to_be_that(tmp_path: Path) -> None:
    code = """
import os, resource, sys
from pathlib import Path
from ninelives.stores.sqlite import SqliteStore
from ninelives.core.errors import StoreUnavailable
path = Path(sys.argv[1])
SqliteStore(path).close()
top = os.open(os.devnull, os.O_RDONLY)
for spare in range(40):
    resource.setrlimit(resource.RLIMIT_NOFILE, (top + 1 + spare, 4096))
    try:
        SqliteStore(path).close()
    except StoreUnavailable as error:
        assert f"cannot open {path}: this process has too many open files" in error.what, error
        assert "ulimit" in error.remedy
    else:
        print("opened")
"""
    path = str(tmp_path / "runs.db")
    ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert ran.stdout.endswith("opened\n")


@pytest.mark.parametrize("utf8", ["0", "1"])
def test_a_path_beyond_ascii_is_the_same_in_every_locale(tmp_path: Path, utf8: str) -> None:
    home = tmp_path / "ünï"
    home.mkdir()
    with closing(SqliteStore(home / "runs.db")) as store:
        store.create_runs([new_run("r")])
        url = store.url
    code = """
import sys
from ninelives.stores.open import open_store
for url in (sys.argv[1], "sqlite:///runs.db", f"sqlite:///{sys.argv[2]}"):
    store = open_store(url)
    assert store.read_run("r") is not None
    print(ascii(store.url))
    store.close()
"""
    told = subprocess.run(
        [sys.executable, "-c", code, url, str(home / "runs.db")],
        cwd=home,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": utf8, "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told.split() == [repr(url)] * 3


def test_the_default_directory_is_kept_out_of_git(tmp_path: Path) -> None:
    SqliteStore(tmp_path / ".ninelives" / "runs.db").close()
    SqliteStore(tmp_path / "other" / "runs.db").close()
    assert (tmp_path / ".ninelives" / ".gitignore").read_text() == "*\n"
    assert not (tmp_path / "other" / ".gitignore").exists()
