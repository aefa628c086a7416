"""The log and who empties it: it does not grow for ever, nobody hangs, readers see one truth."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from ninelives.core.errors import StoreBroken, StoreError, StoreUnavailable
from ninelives.core.model.run import RunRow
from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.files import checkpointer
from ninelives.stores.sqlite.files.checkpointer import Checkpointer
from tests.contract.makers import append, new_run, new_session
from tests.integration.conftest import Opener, Starter
from tests.integration.roles import advance, spy_on_log

LONG_SECONDS = 30.0
FRAME_BYTES = 4096 + 24
COMMITS, BODY_BYTES = 500, 60_000  # some 8,000 pages: four times what starts a checkpoint


def log_pages(path: Path) -> int:
    try:
        return Path(f"{path}-wal").stat().st_size // FRAME_BYTES
    except FileNotFoundError:
        return 0  # the last to close the store has taken it away


def test_the_log_stays_short_under_steady_load(path: Path, opened: Opener) -> None:
    store = opened()
    longest = spy_on_log(store)
    store.register_session(new_session())
    store.create_runs([new_run()])
    (row,) = store.claim_runs("s1", 1, {"helper": 1}).runs
    for _ in range(COMMITS):
        row = advance(store, row, append(row, bytes(BODY_BYTES)))
    assert checkpointer.LOG_PAGES <= longest() < 4 * checkpointer.LOG_PAGES
    assert log_pages(path) < 4 * checkpointer.LOG_PAGES
    assert store.load_journal("r1", since=0).run.length == COMMITS + 1


def test_the_log_stays_short_with_two_processes(path: Path, started: Starter, opened: Opener) -> None:
    both = [started("load", name, COMMITS // 2, BODY_BYTES) for name in ("a", "b")]
    assert [child.read() for child in both] == ["ready", "ready"]
    for child in both:
        child.tell()
    longest = [int(child.read().removeprefix("done ")) for child in both]
    assert max(longest) < 4 * checkpointer.LOG_PAGES
    assert log_pages(path) < 4 * checkpointer.LOG_PAGES
    assert [child.wait() for child in both] == [0, 0]
    for name in ("a", "b"):
        assert opened().load_journal(name, since=0).run.length == COMMITS // 2 + 1


def test_closing_never_hangs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointer, "LOG_PAGES", 6)
    finished = threading.Event()
    failures: list[BaseException] = []

    def loop() -> None:
        try:
            for number in range(200):
                store = SqliteStore(path)
                for more in range(number % 4):
                    store.create_runs([new_run(f"r{number}-{more}")])
                store.close()
        except BaseException as error:
            failures.append(error)
        finished.set()

    threading.Thread(target=loop, daemon=True).start()
    assert finished.wait(LONG_SECONDS), "close() hangs"
    assert failures == []


def test_readers_see_one_truth_while_the_log_is_emptied(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointer, "LOG_PAGES", 4)
    writer, reader = opened(), opened()
    writer.register_session(new_session())
    writer.create_runs([new_run()])
    (row,) = writer.claim_runs("s1", 1, {"helper": 1}).runs
    done = threading.Event()
    seen: list[int] = []
    wrong: list[BaseException] = []

    def read() -> None:
        try:
            while not done.is_set():
                journal = reader.load_journal("r1", since=0)  # verifies the chain up to the head
                assert len(journal.records) == journal.run.length
                seen.append(journal.run.length)
        except BaseException as error:
            wrong.append(error)

    looking = threading.Thread(target=read)
    looking.start()
    for number in range(150):
        row = advance(writer, row, append(row, b"%d" % number))
    done.set()
    looking.join(LONG_SECONDS)
    assert wrong == []
    assert seen == sorted(seen)
    assert reader.load_journal("r1", since=0).run.length == 151


@pytest.mark.parametrize("fault", ["the log cannot be opened", "the disk fails"])
def test_a_commit_after_which_no_room_can_be_made_in_the_log_succeeds_and_wakes_others(
    path: Path, tmp_path: Path, opened: Opener, fault: str
) -> None:
    store, other = opened(), opened()
    store._files.fill_log()
    while other.wait_for_work(0):
        pass
    log, aside = Path(f"{path}-wal"), tmp_path / "aside"
    begun = []

    def fail(_: object, sql: str, __: object) -> bool:
        begun.append(sql)
        if begun.count("BEGIN IMMEDIATE") == 2:
            raise apsw.IOError("disk I/O error")
        return True

    if fault == "the disk fails":
        store._files._cursor.exec_trace = fail
    else:
        log.rename(aside)
        log.mkdir()
    large = [new_run(f"r{number}", body=b"0" * 60_000) for number in range(20)]
    assert all(isinstance(row, RunRow) for row in store.create_runs(large))
    assert other.wait_for_work(0)
    if fault == "the disk fails":
        assert begun.count("BEGIN IMMEDIATE") == 2
        store._files._cursor.exec_trace = None
    else:
        log.rmdir()
        aside.rename(log)
    store.create_runs([new_run("later")])


# The thread itself -------------------------------------------------------------------------------


class Bench:
    """A checkpointer on an open store's database, whose turn to write is in a test's hands."""

    def __init__(self, store: SqliteStore, path: Path) -> None:
        self.store, self.told = store, list[StoreError]()
        self.turns: list[Callable[[], None]] = []
        self.called = threading.Semaphore(0)
        live = path.with_name(path.name + "-live")
        self.subject = Checkpointer(live, store._files.connect, self.alone, self.copied, self.told.append)
        self.marks: list[Callable[[], None]] = []

    def copied(self, _: object) -> None:
        if self.marks:
            self.marks.pop(0)()

    def alone(self, work: Callable[[], None]) -> None:
        try:
            if self.turns:
                self.turns.pop(0)()
            work()
        finally:
            self.called.release()

    def grown(self) -> None:
        self.subject.grown(checkpointer.LOG_PAGES)


@pytest.fixture
def bench(opened: Opener, path: Path) -> Bench:
    """Return a checkpointer of our own."""
    return Bench(opened(), path)


def refuse() -> None:
    raise StoreUnavailable("another process has held the writers' lock")


def test_a_short_log_starts_no_thread(bench: Bench) -> None:
    bench.subject.grown(checkpointer.LOG_PAGES - 1)
    assert bench.subject._thread is None
    bench.subject.close()


def test_it_starts_again_after_the_store_was_not_available(bench: Bench) -> None:
    bench.turns = [refuse]
    bench.grown()
    assert bench.called.acquire(timeout=LONG_SECONDS)
    gone(bench)
    bench.grown()
    assert bench.called.acquire(timeout=LONG_SECONDS)
    bench.subject.close()
    assert bench.told == []


def test_what_was_asked_for_while_it_failed_is_not_lost(bench: Bench) -> None:
    def asked_meanwhile() -> None:
        bench.grown()
        refuse()

    bench.turns = [asked_meanwhile]
    bench.grown()
    assert bench.called.acquire(timeout=LONG_SECONDS)
    gone(bench)
    bench.grown()  # the next commit
    assert bench.called.acquire(timeout=3), "the log is never emptied again"
    bench.subject.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_it_starts_again_after_it_could_not_connect(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = bench.subject._connect
    tried = threading.Semaphore(0)

    def fail() -> object:
        tried.release()
        raise StoreUnavailable("too many open files")

    bench.subject._connect = fail  # type: ignore[assignment]
    bench.grown()
    assert tried.acquire(timeout=LONG_SECONDS)
    gone(bench)
    bench.subject._connect = connect
    bench.grown()
    assert bench.called.acquire(timeout=3), "the log is never emptied again"
    bench.subject.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("fault", [OSError("I/O error"), apsw.BusyError("busy"), apsw.FullError("full")])
def test_it_starts_again_after_it_could_not_say_what_was_copied(bench: Bench, fault: Exception) -> None:
    def fail() -> None:
        raise fault

    bench.marks = [fail]
    bench.grown()
    assert bench.called.acquire(timeout=LONG_SECONDS)
    gone(bench)
    bench.grown()
    assert bench.called.acquire(timeout=3), "the log is never emptied again"
    bench.subject.close()
    assert bench.told == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_database_that_fails_while_it_is_asked_what_was_copied_makes_the_store_unfit(bench: Bench) -> None:
    def fail() -> None:
        raise apsw.IOError("disk I/O error")

    bench.marks = [fail]
    bench.grown()
    assert bench.called.acquire(timeout=LONG_SECONDS)
    bench.subject.close()
    assert [type(error) for error in bench.told] == [StoreBroken]


def test_a_damaged_log_makes_the_store_unfit(bench: Bench) -> None:
    def broken() -> None:
        raise StoreError("damaged")

    bench.turns = [broken]
    bench.grown()
    assert bench.called.acquire(timeout=LONG_SECONDS)
    bench.subject.close()
    assert [error.what for error in bench.told] == ["damaged"]


def test_only_one_process_empties_the_log_at_a_time(path: Path, bench: Bench) -> None:
    import fcntl

    lock = path.with_name(path.name + "-live") / "checkpoint.lock"
    with lock.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        bench.grown()
        assert not bench.called.acquire(timeout=0.2)
    bench.grown()
    assert bench.called.acquire(timeout=LONG_SECONDS)
    bench.subject.close()


def gone(bench: Bench) -> None:
    """Wait until the checkpointer's thread has ended."""
    for thread in threading.enumerate():
        if thread.name == "ninelives-checkpointer":
            thread.join(LONG_SECONDS)
    assert bench.subject is not None
