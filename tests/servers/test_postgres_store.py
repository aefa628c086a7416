"""What is PostgreSQL's own: round trips, lost answers, settings, many openers, locks."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import errors as driver
from psycopg.conninfo import conninfo_to_dict

from ninelives.core.errors import (
    BadRecord,
    Corrupt,
    LeaseLost,
    SchemaMismatch,
    StoreUnavailable,
    StoreUnsafe,
    UsageError,
)
from ninelives.core.model.commit import End, Outcome
from ninelives.core.model.log_entry import Happening, NewEntry
from ninelives.core.model.run import Claims, Kind, RunQuery, RunRow, State
from ninelives.core.model.session import Cause, Fate
from ninelives.stores.open import open_store
from ninelives.stores.postgres import PostgresStore, claims, sessions
from ninelives.stores.postgres.server import schema, session_locks
from ninelives.stores.postgres.server.address import parse
from ninelives.stores.postgres.server.open_connection import connect
from ninelives.stores.postgres.server.queries import migrations
from ninelives.stores.postgres.transaction import Transaction, save_runs
from ninelives.stores.shared.selection import Wanted
from tests.contract.makers import AGENTS, append, damage_in, new_run, new_session, reserve
from tests.servers.postgres import change, shared_url
from tests.servers.proxy import Proxy

T = TypeVar("T")


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Yield a proxy before the shared server."""
    with Proxy(urlsplit(shared_url()).port or 5432) as made:
        yield made


@pytest.fixture
def far(postgres_url: str, proxy: Proxy) -> Iterator[PostgresStore]:
    """Yield a store that speaks through the proxy."""
    port = urlsplit(postgres_url).port
    store = PostgresStore(postgres_url.replace(f":{port}/", f":{proxy.port}/"))
    yield store
    store.close()


def running(store: PostgresStore, name: str = "r1") -> RunRow:
    """Create a run and claim it."""
    store.create_runs([new_run(name)])
    if store.read_session("s1") is None:
        store.register_session(new_session("s1", lease_ms=1_000_000))
    (run,) = store.claim_runs("s1", 1, AGENTS).runs
    return run


def until(look: Callable[[], T]) -> T:
    """Look until there is something to see."""
    deadline = time.monotonic() + 60
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def row(store: PostgresStore, name: str = "r1") -> RunRow:
    found = store.read_run(name)
    assert found is not None
    return found


def test_a_step_of_a_single_run_takes_one_round_trip_and_so_does_its_end(
    far: PostgresStore, proxy: Proxy
) -> None:
    run = running(far)
    for _ in range(3):  # the first statements are prepared
        far.commit([append(run, b"1")])
        run = row(far)
    before = proxy.round_trips
    far.commit([append(run, b"1")])
    assert proxy.round_trips - before == 1
    before = proxy.round_trips
    far.commit([append(row(far), b"1", change=End(State.COMPLETED))])
    far_end = proxy.round_trips - before
    assert far_end == 1 + 1  # read_run is one of them
    assert row(far).state is State.COMPLETED


def test_a_process_with_a_session_knows_the_time_without_asking(far: PostgresStore, proxy: Proxy) -> None:
    far.register_session(new_session("s1"))
    before, asked_ms = proxy.round_trips, far.read_clock()
    assert proxy.round_trips > before
    for renews in (False, True):
        if renews:
            far.renew_session("s1")
        before = proxy.round_trips
        known_ms = [far.now_ms() for _ in range(100)]
        assert proxy.round_trips - before < 5  # other threads may speak meanwhile
        assert known_ms == sorted(known_ms)
        assert asked_ms - 1000 <= known_ms[0] <= known_ms[-1] <= far.read_clock() + 1000


NTH = pytest.mark.parametrize("nth", range(1, 6))
"""Which answer is lost: that of a question, that of a COMMIT, or none, where an operation takes fewer."""


@NTH
def test_an_append_whose_answer_was_lost_counts_once(far: PostgresStore, proxy: Proxy, nth: int) -> None:
    run = running(far)
    proxy.lose_answer(nth)
    (verdict,) = far.commit([append(run, b"only once")])
    assert verdict.outcome is Outcome.COMMITTED
    assert proxy.cuts == (nth == 1)
    assert row(far).length == run.length + 1
    assert damage_in(far) == []


@NTH
def test_a_signal_whose_answer_was_lost_is_sent_once(far: PostgresStore, proxy: Proxy, nth: int) -> None:
    run = running(far)
    proxy.lose_answer(nth)
    sent = far.send_signal(run.id, "paid", b"1")
    assert [one.number for one in far.load_journal(run.id).signals] == [sent.number] == [1]


@NTH
def test_a_claim_whose_answer_was_lost_is_still_answered(far: PostgresStore, proxy: Proxy, nth: int) -> None:
    far.create_runs([new_run("r1")])
    far.register_session(new_session("s1", lease_ms=1_000_000))
    proxy.lose_answer(nth)
    # While the server has not missed the old connection, its transaction may hold the run's row.
    claimed = until(lambda: far.claim_runs("s1", 1, AGENTS).runs)
    assert [(run.id, run.epoch) for run in claimed] == [("r1", 1)]
    assert (row(far).session, row(far).epoch) == ("s1", 1)


@contextmanager
def slow_commits(url: str, table: str) -> Iterator[Callable[[], bool]]:
    """Let every COMMIT that touches a table wait, as for a standby; yields whether one does."""
    number, schema_name = secrets.randbits(31), parse(url).schema
    change(
        f"""CREATE FUNCTION {schema_name}.wait() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock_shared({number}); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER wait AFTER INSERT OR UPDATE ON {schema_name}.{table}
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema_name}.wait()"""
    )
    with closing(psycopg.connect(shared_url(), autocommit=True)) as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", (number,))

        def is_waited_for() -> bool:
            waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"
            return holder.execute(waiting, (number,)).fetchone() is not None

        yield is_waited_for


ENTRY = NewEntry(kind=Happening.TAKEN, run="r1", session="s1", body=b"{}")
FIRST_WRITES: dict[str, tuple[str, Callable[[PostgresStore], object]]] = {
    "signal": ("signals", lambda store: store.send_signal("r1", "coin", b"5")),
    "claim": ("runs", lambda store: store.claim_runs("s1", 1, AGENTS)),
    "log": ("log", lambda store: store.append_log([ENTRY])),
}


@pytest.mark.parametrize("what", FIRST_WRITES)
def test_the_first_write_of_a_connection_counts_once_when_it_breaks_while_the_commit_is_under_way(
    postgres_url: str, proxy: Proxy, what: str
) -> None:
    table, write = FIRST_WRITES[what]
    with closing(PostgresStore(postgres_url)) as near:
        near.create_runs([new_run("r1"), new_run("r2")])
        near.register_session(new_session("s1", lease_ms=1_000_000))
        port = urlsplit(postgres_url).port
        with closing(PostgresStore(postgres_url.replace(f":{port}/", f":{proxy.port}/"))) as far:
            with ThreadPoolExecutor(1) as pool, slow_commits(postgres_url, table) as is_waited_for:
                answer = pool.submit(write, far)
                until(is_waited_for)
                proxy.cut()
                with pytest.raises(TimeoutError):  # it waits to find out, and does not do it again
                    answer.result(0.3)
            found = answer.result(60)
        if isinstance(found, Claims):
            (claimed,) = found.runs
            assert [run.id for run in near.list_runs(RunQuery(session="s1"))] == [claimed.id]
        assert len(near.load_journal("r1").signals) == (what == "signal")
        assert len(near.read_log()) == (what == "log")


@NTH
def test_a_birth_whose_answer_was_lost_is_still_the_session_s(
    far: PostgresStore, proxy: Proxy, nth: int
) -> None:
    far.register_session(new_session("s1", lease_ms=1_000_000))
    proxy.lose_answer(nth)
    (made,) = far.create_runs([new_run("r1")], session="s1")
    assert made == row(far)
    assert (row(far).session, row(far).epoch, row(far).length) == ("s1", 1, 1)
    assert damage_in(far) == []


@NTH
def test_a_session_whose_answer_was_lost_is_registered_once(
    far: PostgresStore, proxy: Proxy, nth: int
) -> None:
    proxy.lose_answer(nth)
    assert far.register_session(new_session("s1", lease_ms=1_000_000)).id == "s1"
    assert far.renew_session("s1").left_ms > 0


@NTH
def test_a_key_and_an_end_whose_answers_were_lost_count_once(
    far: PostgresStore, proxy: Proxy, nth: int
) -> None:
    run = running(far)
    proxy.lose_answer(nth)
    (verdict,) = far.commit([append(run, b"1", keys=[reserve("k")])])
    assert verdict.outcome is Outcome.COMMITTED
    assert far.read_keys(["k"])["k"].run == run.id
    run = row(far)
    proxy.lose_answer(nth)
    (verdict,) = far.commit([append(run, b"2", change=End(State.COMPLETED))])
    assert (verdict.outcome, row(far).state) == (Outcome.COMMITTED, State.COMPLETED)
    assert row(far).length == run.length + 1
    assert damage_in(far) == []


def test_a_server_that_cannot_be_reached_is_unavailable(far: PostgresStore, proxy: Proxy) -> None:
    run = running(far)
    proxy.stop()
    with pytest.raises(StoreUnavailable):
        far.send_signal(run.id, "paid", b"1")


def test_many_processes_may_open_a_new_store_at_once(postgres_url: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        stores = list(threads.map(PostgresStore, [postgres_url] * 8))
    assert {store.migrate()[1] for store in stores} == {len(migrations())}
    for store in stores:
        store.close()


@pytest.mark.parametrize("setting", ["synchronous_commit"])
def test_unsafe_settings_are_refused_unless_the_url_says_so(postgres_url: str, setting: str) -> None:
    role = f"role_{secrets.token_hex(6)}"
    change(f"CREATE ROLE {role} LOGIN")
    change(f"GRANT CREATE ON DATABASE postgres TO {role}")
    change(f"ALTER ROLE {role} SET {setting} = off")
    url = postgres_url.replace("postgres@", f"{role}@")
    try:
        with pytest.raises(StoreUnsafe, match=setting):
            PostgresStore(url)
        store = PostgresStore(f"{url}&unsafe={setting}")  # and the user is no superuser
        assert running(store).state is State.RUNNING
        store.close()
    finally:
        change(f"DROP OWNED BY {role} CASCADE")
        change(f"DROP ROLE {role}")


@pytest.mark.parametrize(
    "wrong",
    ["schema=Robert'); DROP", "schema=pg_x", "unsafe=everything", "pooled=perhaps", "shcema=x", "x#y=z"],
)
def test_a_url_that_makes_no_sense_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError):
        open_store(f"postgresql://nobody@127.0.0.1:1/none?{wrong}")


@pytest.mark.parametrize("port", ["notaport", "0", "65536", "5432,none", "+1"])
def test_a_port_that_is_none_is_no_server_that_is_away(port: str) -> None:
    with pytest.raises(UsageError, match="URL has an invalid port"):
        parse(f"postgresql://h/x?port={quote(port)}")
    with pytest.raises(UsageError, match="direct_url has an invalid port"):
        parse(f"postgresql://h/x?direct_url={quote(f'postgresql://h/x?port={quote(port)}', safe='')}")


def test_every_host_may_have_its_port() -> None:
    assert conninfo_to_dict(parse("postgresql://one:5432,two/x").libpq)["host"] == "one,two"
    assert conninfo_to_dict(parse("postgresql://one:5432,two:5433/x").libpq)["port"] == "5432,5433"


def test_a_schema_of_a_reserved_name_is_said_to_be_reserved() -> None:
    with pytest.raises(UsageError, match="begin with pg_"):
        parse("postgresql://h/x?schema=pg_foo")


def test_what_is_libpqs_own_reaches_it_unchanged() -> None:
    found = parse("postgresql://u@h/db?options=-c%20statement_timeout%3D5s&schema=x")
    assert conninfo_to_dict(found.libpq)["options"] == "-c statement_timeout=5s"


def test_the_url_is_shown_without_its_secrets(postgres_url: str) -> None:
    store = PostgresStore(postgres_url.replace("postgres@", "postgres:s3cret@"))
    assert "s3cret" not in store.url
    assert store.url.startswith("postgresql://postgres@127.0.0.1:")
    store.close()


def test_a_session_whose_connection_ended_loses_its_runs_and_is_not_proved_gone(postgres_url: str) -> None:
    dying, other = PostgresStore(postgres_url), PostgresStore(postgres_url)
    running(dying)
    assert other.end_sessions(None, Cause.DIED) == []
    dying.close()
    (ended,) = until(lambda: other.end_sessions(None, Cause.DIED))  # the server takes a moment
    assert (ended.id, ended.cause, ended.fate) == ("s1", Cause.DIED, Fate.UNKNOWN)
    assert row(other).session is None
    other.close()


def test_a_session_takes_its_lock_again_when_its_connection_breaks(far: PostgresStore) -> None:
    running(far)
    # Every connection of the store is ended at the server, as a restart of it would.
    change(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'ninelives' AND pid <> pg_backend_pid()"
    )
    assert far.renew_session("s1").left_ms > 0
    assert far.end_sessions(None, Cause.DIED) == []
    assert row(far).session == "s1"


def test_a_lock_that_comes_after_its_session_is_over_is_not_kept(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_locks, "_PATIENCE_SECONDS", 0.1)
    store = PostgresStore(postgres_url)
    running(store)
    lock = store._sessions._locks["s1"]
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"

    def is_awaited(count: int) -> bool:
        with closing(psycopg.connect(shared_url(), autocommit=True)) as asking:
            return asking.execute(waiting.encode()).fetchone() == (count,)

    with closing(psycopg.connect(shared_url(), autocommit=True)) as rival, ThreadPoolExecutor(1) as threads:
        taken = threads.submit(rival.execute, "SELECT pg_advisory_lock(%s)", (lock._number,))
        until(lambda: is_awaited(1))
        change(f"SELECT pg_terminate_backend({lock._connection.info.backend_pid})")
        taken.result(60)
        until(lambda: is_awaited(1))  # the store wants its lock back
        assert lock.release() is None
        rival.execute("SELECT pg_advisory_unlock_all()")
        lock._watch.join(60)
        free = "SELECT pg_try_advisory_lock(%s)"
        until(lambda: rival.execute(free, (lock._number,)).fetchone() == (True,))
    store.close()


def test_a_run_that_has_lost_the_record_before_a_turn_is_not_shortened(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    run = running(store)
    for body in (b"step", b"one", b"two"):
        store.commit([append(run, body, kind=Kind.RESULT if body == b"step" else Kind.TURN)])
        run = row(store)
    assert change(f"DELETE FROM {parse(postgres_url).schema}.records WHERE seq = 1") == 1
    with pytest.raises(Corrupt, match="record 1 is missing") as caught:
        store.prune(ended_before_ms=0)
    assert caught.value.run == "r1"
    assert row(store) == run
    store.close()


def test_a_transaction_that_fails_spoils_none_that_come_after_it(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    prove = ("prove_session", (b"", "nobody"))

    def fail(tx: Transaction) -> None:
        tx.do("end_session", (1, "\0", b"", "nobody"))  # no text: what comes after it is skipped
        tx.do(*prove)

    for _ in range(2):
        store._pool.write(lambda tx: None)  # nothing to commit: it is rolled back
    with pytest.raises(BadRecord):
        store._pool.write(fail)
    store._pool.write(lambda tx: tx.do(*prove))
    store.close()


def test_a_connection_whose_work_was_given_up_knows_what_it_had_prepared(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    prove = ("prove_session", (b"", "nobody"))

    def give_up(tx: Transaction) -> None:
        tx.do(*prove)
        raise KeyError

    with pytest.raises(KeyError):
        store._pool.write(give_up)
    store._pool.write(lambda tx: tx.do(*prove))
    store.close()


def test_a_child_that_came_by_fork_closes_nothing_of_its_parents(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    running(store)
    store.wait_for_work(0)
    kept, other = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads, which is what this is about
        pid = os.fork()
    if pid == 0:
        # The parent's sockets are closed here: their numbers are free for the child's own files.
        own = [os.dup(kept) for _ in range(30)]
        with suppress(BaseException):
            signal.alarm(4)  # a child that hangs is killed by it
            store.close()
            os._exit(sum(not is_open(fd) for fd in own))
        os._exit(99)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.renew_session("s1").left_ms > 0
    store.create_runs([new_run("r2")])
    assert store.wait_for_work(5)
    store.close()
    for fd in (kept, other):
        os.close(fd)


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def while_locked(store: PostgresStore, work: Callable[[Transaction], object], blocked: Callable[[], T]) -> T:
    """Do something that waits for a transaction's locks, and end the transaction when it waits."""
    is_done, is_waited_for = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        work(tx)
        tx.all("read_clock")  # what was sent before this has been done
        is_done.set()
        assert is_waited_for.wait(60)

    def is_waiting() -> bool:
        return bool(change("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))

    with ThreadPoolExecutor(2) as threads:
        held = threads.submit(store._pool.write, hold)
        assert is_done.wait(60)
        answer = threads.submit(blocked)
        until(is_waiting)
        is_waited_for.set()
        held.result(60)
        return answer.result(60)


@pytest.mark.parametrize("count", [1, 2])
def test_who_loses_a_run_while_it_waits_to_append_is_fenced(postgres_url: str, count: int) -> None:
    store, other = PostgresStore(postgres_url), PostgresStore(postgres_url)
    owned = [running(store, f"r{n}") for n in range(count)]

    def take(tx: Transaction) -> None:
        save_runs(tx, [replace(run, epoch=run.epoch + 1) for run in owned])

    verdicts = while_locked(other, take, lambda: store.commit([append(run, b"1") for run in owned]))
    assert {verdict.outcome for verdict in verdicts} == {Outcome.FENCED}
    assert [row(store, run.id).length for run in owned] == [run.length for run in owned]
    for one in (store, other):
        one.close()


def test_no_run_is_born_as_a_session_s_that_is_being_ended(postgres_url: str) -> None:
    store, other = PostgresStore(postgres_url), PostgresStore(postgres_url)
    store.register_session(new_session("s1"))

    def end(tx: Transaction) -> None:
        tx.all("lock_sessions", (["s1"],))
        tx.do("end_session", (tx.now_ms, "died", None, "s1"))

    with pytest.raises(LeaseLost):
        while_locked(other, end, lambda: store.create_runs([new_run("r1")], session="s1"))
    assert store.read_run("r1") is None
    for one in (store, other):
        one.close()


def migrated(url: str, monkeypatch: pytest.MonkeyPatch, step: str = "SELECT 1") -> None:
    """Bring a store to a version that comes after ours."""
    monkeypatch.setattr(schema, "migrations", lambda: (*migrations(), step))
    address = parse(url)
    connection, _ = connect(address, is_direct=True)
    with closing(connection):
        assert schema.migrate(connection, address) == (len(migrations()), len(migrations()) + 1)


@pytest.mark.parametrize("count", [1, 2])
def test_a_migration_takes_their_runs_from_owners_of_the_old_version(
    postgres_url: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(postgres_url)
    owned = [running(store, f"r{n}") for n in range(count)]
    migrated(postgres_url, monkeypatch)
    with pytest.raises(SchemaMismatch):
        store.commit([append(run, b"1") for run in owned])
    assert [row(store, run.id).length for run in owned] == [run.length for run in owned]
    store.close()


def test_a_migration_waits_for_who_claims_and_takes_the_run_from_him(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(postgres_url)
    store.create_runs([new_run("r1")])
    store.register_session(new_session("s1", lease_ms=1_000_000))
    claimed: list[RunRow] = []

    def claim(tx: Transaction) -> None:
        claimed.extend(claims.claim(tx, "s1", 1, Wanted(AGENTS, ("default",))).runs)

    while_locked(store, claim, lambda: migrated(postgres_url, monkeypatch))
    with pytest.raises(SchemaMismatch):
        store.commit([append(claimed[0], b"1")])
    assert row(store).length == claimed[0].length
    store.close()


AFTER_A_DEADLOCK = """
DO $$ BEGIN
  WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock') LOOP
    PERFORM pg_stat_clear_snapshot();
  END LOOP;
  PERFORM pg_sleep(1.5);  -- who waits has looked for a deadlock by now, and will not be ended for one
END $$;
ALTER TABLE :schema.records ADD COLUMN more integer;
ALTER TABLE :schema.runs ADD COLUMN more integer
"""


@pytest.mark.parametrize("count", [1, 20])
def test_a_migration_gets_through_while_workers_of_the_old_version_take_steps(
    postgres_url: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(postgres_url)
    owned = [running(store, f"r{n:02}") for n in reversed(range(count))]
    has_begun, is_over = threading.Event(), threading.Event()

    def work() -> None:
        mine = owned
        while not is_over.is_set():
            batch = [append(run, b"x") for run in mine]
            assert {one.outcome for one in store.commit(batch)} == {Outcome.COMMITTED}
            mine = [
                replace(run, length=one.new_length, head=one.new_head)
                for run, one in zip(mine, batch, strict=True)
            ]
            has_begun.set()

    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(work)
        assert has_begun.wait(60)
        try:
            migrated(postgres_url, monkeypatch, AFTER_A_DEADLOCK)
            assert isinstance(working.exception(60), SchemaMismatch)
        finally:
            is_over.set()
    store.close()


def test_a_migration_that_another_transaction_was_in_the_way_of_is_made_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    PostgresStore(postgres_url).close()
    original, left = schema._migrate, [driver.DeadlockDetected("in the way")] * 2

    def unlucky(*given: Any) -> tuple[int, int]:
        if left:
            raise left.pop()
        return original(*given)

    monkeypatch.setattr(schema, "_migrate", unlucky)
    migrated(postgres_url, monkeypatch)
    assert not left


DOOMED = """
import os, sys
from ninelives.stores.postgres import PostgresStore
from ninelives.core.model.session import NewSession
store = PostgresStore(sys.argv[1])
store.register_session(NewSession(id="s1", host="here", pid=os.getpid(), lease_ms=10**6))
print("registered", flush=True)
sys.stdin.read()
"""


@contextmanager
def doomed(url: str) -> Iterator[subprocess.Popen[str]]:
    """Have another process begin the session s1; it is killed at the end, if not before."""
    command = [sys.executable, "-c", DOOMED, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "registered\n"
            yield process
        finally:
            process.kill()


def test_nobody_is_waited_for_who_was_killed_on_this_host(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(postgres_url)
    store.register_session(new_session("s2", host="here", lease_ms=10**6))
    monkeypatch.setattr(sessions, "_RECHECK_SECONDS", "waiting raises")
    with doomed(postgres_url):
        pass
    (ended,) = until(lambda: store.end_sessions(None, Cause.DIED))
    assert (ended.id, ended.fate) == ("s1", Fate.UNKNOWN)
    store.close()


@pytest.mark.parametrize("is_early", [True, False], ids=["before we are there", "while we watch"])
def test_a_death_is_seen_by_who_waits_for_work_without_a_look_of_its_own(
    postgres_url: str, *, is_early: bool
) -> None:
    store = PostgresStore(postgres_url)
    with doomed(postgres_url) as process:
        if is_early:
            process.kill()
            process.wait()
        store.wait_for_work(0.0)  # a worker listens before it has a session, and then not for a second
        store.register_session(new_session("s2", host="here", lease_ms=10**6))
        if not is_early:
            until(lambda: change("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
            process.kill()
        until(lambda: (found := store.read_session("s1")) is not None and found.cause is Cause.DIED)
    store.close()
