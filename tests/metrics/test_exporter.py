"""`ninelives metrics`: what it says, in which form, and what it does when the store is away."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ninelives.core.model.commit import End, Park
from ninelives.core.model.counter import Counter
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import State
from ninelives.core.model.session import Cause
from ninelives.governance.audit_log.entries import switch
from ninelives.governance.audit_log.follower import catch_up
from ninelives.governance.budgets.declarations import check
from ninelives.governance.budgets.publication import publish
from ninelives.ops.metrics.families import FAMILIES, OPTIONAL, SAMPLES, VALUES
from ninelives.ops.notify.state import write_state
from ninelives.ops.status import status
from ninelives.stores.open import open_store
from ninelives.stores.sqlite import SqliteStore
from tests.clocks import SteppingClock
from tests.contract.benches import SqliteBench
from tests.contract.makers import new_item, new_run
from tests.metrics import programs
from tests.metrics.scraping import OPENMETRICS, Exporter, Scraped, value, wait_for, waiting_notices
from tests.servers.postgres import PostgresServer, free_port, quick_directory


def url_of(directory: Path) -> str:
    return f"sqlite:///{directory}/runs.db"


def without_time(scraped: Scraped) -> Scraped:
    """Leave out what differs from scrape to scrape."""
    moving = ("duration_seconds", "oldest_seconds", "free_bytes", "store_bytes")
    return {
        key: number
        for key, number in scraped.items()
        if not any(key[0] == f"ninelives_{name}" or key[0].endswith(name) for name in moving)
        or "recovery" in key[0]
        or "detection" in key[0]
    }


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A store with a bit of everything."""
    clock = SteppingClock()
    bench = SqliteBench(clock, tmp_path / "runs.db")
    store = bench.store
    bench.session("dead", agents=("a",), host="m1")
    bench.create("left", agent="a")
    bench.write(bench.claim("left", "dead"), b"x")
    clock.advance(1000)
    store.end_sessions(["dead"], Cause.DIED)
    clock.advance(40_000)
    bench.session("s1", agents=("a", "idle"), host="m1~x", lease_ms=10**9)
    store.renew_session("s1", counts=[Counter("actions", {"agent": "a", "kind": "once"}, 7)])
    bench.write(bench.claim("left"), b"x", opens=[new_item("i", kind=ItemKind.DOUBT, step="#pay#0")])
    bench.create("ok", agent="a")
    bench.write(bench.claim("ok"), b"x", change=End(State.COMPLETED))
    bench.create("parked", agent="a")
    bench.write(bench.claim("parked"), b"x", change=Park(None, "a signal", 0))
    store.create_runs([new_run("foreign", agent="b", queue="slow")])
    bench.close()
    return tmp_path


def test_it_says_what_the_store_holds(planted: Path) -> None:
    with Exporter(url_of(planted)) as exporter:
        found = exporter.scrape()
    assert value(found, "ninelives_store_up") == 1
    assert value(found, "ninelives_info", store="sqlite") == 1
    assert value(found, "ninelives_runs", agent="a", state="running") == 1
    assert value(found, "ninelives_runs", agent="a", state="checkpointed") == 1
    assert value(found, "ninelives_runs", agent="b", queue="slow", state="pending") == 1
    assert value(found, "ninelives_runs_without_code", agent="b") == 1
    assert value(found, "ninelives_runs_started_total", agent="a") == 3
    assert value(found, "ninelives_runs_ended_total", agent="a", outcome="completed") == 1
    assert value(found, "ninelives_runs_left_total", agent="a", cause="died") == 1
    assert value(found, "ninelives_detection_duration_seconds_count", cause="died") == 1
    assert value(found, "ninelives_detection_duration_seconds_sum", cause="died") == 1.0
    assert value(found, "ninelives_detection_duration_seconds_bucket", cause="died", le="0.5") == 0
    assert value(found, "ninelives_detection_duration_seconds_bucket", cause="died", le="1.0") == 1
    assert value(found, "ninelives_detection_duration_seconds_bucket", cause="died", le="+Inf") == 1
    assert value(found, "ninelives_worker_deaths_total") == 1
    assert value(found, "ninelives_actions_total", agent="a", kind="once") == 7
    assert value(found, "ninelives_in_doubt", agent="a", action="pay") == 1
    assert value(found, "ninelives_inbox_items", kind="doubt") == 1
    assert value(found, "ninelives_runs_unrecovered", agent="a") == 1  # the lock of s1 is dropped
    assert value(found, "ninelives_store_bytes", part="database") > 0
    assert value(found, "ninelives_store_free_bytes") > 0


def test_every_series_exists_from_the_start(tmp_path: Path) -> None:
    bench = SqliteBench(SteppingClock(), tmp_path / "runs.db")
    bench.session("s1", agents=("a",))
    bench.close()
    with Exporter(url_of(tmp_path)) as exporter:
        found = exporter.scrape()
    assert {name for name, _ in found} == {one for one in SAMPLES if not one.startswith(OPTIONAL)}
    for name, family in FAMILIES.items():
        if name.startswith(OPTIONAL):
            continue
        for label, values in VALUES.get(name, {}).items():
            for one in values:
                assert value(found, family.samples[-1], **{label: one}) in (0, 1)
        if "agent" in family.labels:
            assert value(found, family.samples[-1], agent="a") == 0, name
    assert value(found, "ninelives_workers") == 0  # its process is not there


def test_audits_copies_and_notices_are_said_once_there_are_some(planted: Path) -> None:
    store = SqliteStore(planted / "runs.db")
    now_ms = store.now_ms()
    audit = [sys.executable, "-m", "ninelives", "store", "audit", "--store", url_of(planted)]
    subprocess.run(audit, capture_output=True, check=False)
    report = {"written_ms": now_ms - 60_000, "lag_seconds": 2.0, "segments": 7, "errors": {"away": 3}}
    store.write_document("replication/s3", json.dumps(report).encode(), version=0)
    store.write_document("replication/torn", b'"no report"', version=0)
    write_state(store, waiting_notices(store, 900))
    switch(store, on=True)
    catch_up(store)
    publish(store, check([{"name": "all", "scope": "store", "tokens": 10}]))
    store.write_document("budget/all/all/store", b'{"spent":{"tokens":4},"reserved":{"tokens":1}}', version=0)
    store.close()
    with Exporter(url_of(planted)) as exporter:
        found = exporter.scrape()
    assert {name for name, _ in found} == SAMPLES
    assert 0 <= value(found, "ninelives_audit_log_lag_seconds") < 60
    assert value(found, "ninelives_budget_used_ratio", budget="all", meter="tokens") == 0.5
    assert value(found, "ninelives_audit_last_success_timestamp_seconds") * 1000 >= now_ms
    assert value(found, "ninelives_replication_lag_seconds", copy="s3") >= 62
    assert value(found, "ninelives_replication_segments_total") == 7
    assert value(found, "ninelives_replication_errors_total", reason="away") == 3
    assert value(found, "ninelives_notices_waiting", channel="on-call") == 2
    assert value(found, "ninelives_notices_oldest_seconds", channel="on-call") >= 900


def test_two_exporters_and_both_formats_say_the_same(planted: Path) -> None:
    with Exporter(url_of(planted)) as one, Exporter(url_of(planted)) as other:
        plain = without_time(one.scrape())
        assert plain == without_time(other.scrape())
        status, kind, text = one.fetch(Accept=OPENMETRICS)
        assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text")
        assert text.endswith("# EOF\n")
        assert plain == without_time(one.scrape(Accept=OPENMETRICS))
        one.kill()
        assert plain == without_time(other.scrape())


def test_promtool_has_nothing_to_say_about_it(planted: Path) -> None:
    programs.needed(programs.promtool)
    with Exporter(url_of(planted)) as exporter:
        _, _, text = exporter.fetch()
    done = subprocess.run(
        [programs.promtool(), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_store_that_is_gone_is_said_and_the_exporter_lives_on(planted: Path, tmp_path: Path) -> None:
    with Exporter(url_of(planted)) as exporter:
        assert exporter.fetch("/readyz")[0] == 200
        kept = {path: path.read_bytes() for path in planted.glob("runs.db*") if path.is_file()}
        (planted / "runs.db").write_bytes(b"no database")
        found = exporter.scrape()
        assert found == {("ninelives_store_up", frozenset()): 0.0}
        assert exporter.fetch("/readyz")[0] == 503
        assert exporter.fetch("/livez") == (200, "text/plain; charset=utf-8", "ok\n")
        for path, content in kept.items():
            path.write_bytes(content)
        assert value(exporter.scrape(), "ninelives_store_up") == 1
        assert exporter.fetch("/nothing")[0] == 404
        # Deleted: the open file could still be read, and would show what was.
        for path in kept:
            path.unlink()
        assert exporter.scrape() == {("ninelives_store_up", frozenset()): 0.0}
        assert not (planted / "runs.db").exists()
    assert any("the store answers again" in line for line in exporter.lines)


def test_a_server_that_hangs_does_not_hang_the_scrape(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        with Exporter(f"postgresql://nobody@127.0.0.1:{free_port()}/x") as exporter:
            assert exporter.scrape() == {("ninelives_store_up", frozenset()): 0.0}
        source = _source(f"postgresql://nobody@127.0.0.1:{port}/x")
        with pytest.raises(Exception, match="has not answered within"):
            source.read(0.2)


def _source(url: str):  # type: ignore[no-untyped-def]
    from ninelives.ops.metrics.reading import ReadingSource

    return ReadingSource(url)


@pytest.mark.parametrize("url", ["sqlite:///nowhere.db", "memory:", "sqlit:///runs.db"])
def test_a_mistyped_store_is_an_error_and_is_not_created(url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ninelives", "metrics", "--port", "0", "--store", url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_named(planted: Path) -> None:
    code = "import sys; sys.modules['prometheus_client'] = None; from ninelives.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "metrics", "--store", url_of(planted)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'ninelives[metrics]'" in done.stderr


def test_a_port_that_is_taken_is_an_error(planted: Path) -> None:
    with Exporter(url_of(planted)) as exporter:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "ninelives",
                "metrics",
                "--port",
                str(exporter.port),
                "--store",
                url_of(planted),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert "--port" in done.stderr


def test_a_port_that_is_taken_is_a_problem_of_a_fleet_until_it_is_served(
    planted: Path, tmp_path: Path
) -> None:
    (tmp_path / "agent.py").write_text("import ninelives as nl\n@nl.agent\nasync def a() -> None: ...\n")
    store = SqliteStore(planted / "runs.db")

    def said() -> list[str]:
        return [one.text for one in status(store, store.url).problems if one.kind == "metrics"]

    with Exporter(url_of(planted)) as exporter:
        words = ["up", "agent.py", "--processes", "1", "--metrics-port", str(exporter.port)]
        command = [sys.executable, "-m", "ninelives", *words, "--store", url_of(planted)]
        up = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(said, "nothing is said of the port")
            assert str(exporter.port) in said()[0]
            exporter.kill()
            wait_for(lambda: not said(), "it is served, and still a problem")
        finally:
            up.terminate()
            up.wait(60)
            store.close()


def test_a_scrape_reads_no_journal(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ninelives.ops.metrics import reading

    store = SqliteStore(planted / "runs.db")
    for name in ("load_journal", "load_journals", "read_log", "stats", "list_runs"):
        monkeypatch.setattr(SqliteStore, name, None)
    assert reading.read(store).gauges.runs
    store.close()


def test_a_server_that_is_killed_is_said_and_read_again_when_it_is_back() -> None:
    server = PostgresServer(quick_directory())
    try:
        url = f"{server.url}?schema=metrics"
        store = open_store(url)
        store.create_runs([new_run("r", agent="a")])
        store.close()
        with Exporter(url) as exporter:
            assert value(exporter.scrape(), "ninelives_runs", agent="a", state="pending") == 1
            server.kill()
            assert exporter.scrape() == {("ninelives_store_up", frozenset()): 0.0}
            server.start()
            assert value(exporter.scrape(), "ninelives_runs", agent="a", state="pending") == 1
    finally:
        server.remove()
