"""`ninelives ps`, `show`, `snapshot` and `doctor`: what a person learns of runs without detective work."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from base64 import b64decode
from pathlib import Path

import msgspec
import pytest

from ninelives.core.clock import moment
from ninelives.core.journal import chain
from ninelives.core.journal.recovery_log import Recovery, Verified
from ninelives.core.journal.replay import write_body
from ninelives.core.model.commit import Commit, End, Park
from ninelives.core.model.inbox import ItemKind, NewItem
from ninelives.core.model.log_entry import Happening, NewEntry
from ninelives.core.model.run import Control, Kind, NewRun, State, StepKind
from ninelives.core.model.session import HUNG, Cause, Evidence, NewSession
from ninelives.core.model.totals import NO_FACTS, Facts, Retrying, added, error_text, tally_of
from ninelives.core.values.exceptions import encode_error
from ninelives.ops import doctor, snapshot
from ninelives.ops.doctor import (
    Level,
    judge_clock,
    judge_filesystem,
    judge_latency,
    judge_log,
    judge_space,
)
from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.files.paths import filesystem_of
from ninelives.views.escape import json_text, shown
from ninelives.views.recoveries import last_recovery
from tests.clocks import SteppingClock
from tests.crash.marks import Victim

NASTY = "\x1b[31mred\r\n\x9b\u202etxet"
BODIES = (
    (Kind.LOG, "#log#0", json.dumps({"level": "INFO", "line": f"hello {NASTY}"}).encode()),
    (Kind.PROGRESS, "#progress#0", b'{"step": 3, "of": 10, "note": "sorting"}'),
    (Kind.RESULT, "#look#0", write_body(None, value=json.dumps(NASTY).encode())),
    (Kind.INTENT, "b/=left#charge#1", b'{"f":"00","a":{"order":"\\"7\\""}}'),
)


def ninelives(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command on the store in a directory, with no terminal."""
    command = [sys.executable, "-m", "ninelives", *words]
    environment = {**os.environ, "NINELIVES_STORE": f"sqlite:///{home}/runs.db"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=home, env=environment, timeout=60, check=False
    )


def commit(store: SqliteStore, run: str, *bodies: tuple[Kind, str, bytes], **more: object) -> None:
    """Append records to a run that is claimed."""
    row = store.read_run(run)
    assert row is not None
    drafts = [(kind, step, store.now_ms(), body, ()) for kind, step, body in bodies]
    records = chain.seal(row.length, row.head, drafts, row.epoch)
    sums = tally_of(row)
    for record in records:
        sums = added(sums, record.kind, record.step, record.body, NO_FACTS)
    parts = {"run": run, "epoch": row.epoch, "length": row.length, "head": row.head, "records": records}
    parts["tally"] = sums
    (verdict,) = store.commit([Commit(**parts, **more)])  # type: ignore[arg-type]
    assert verdict.outcome == "committed"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store with runs in many states; the session of one that runs died with the process that filled it."""
    filled = subprocess.run([sys.executable, "-m", __name__, str(tmp_path)], timeout=60, check=False)
    assert filled.returncode == 0
    return tmp_path


def fill(home: Path) -> None:
    """Fill a store."""
    store = SqliteStore(home / "runs.db")
    names = ("done", "torn", "parked", "asks", "../../etc")
    labels = {"team": "a b"}
    store.create_runs(
        [
            NewRun(id=name, agent=f"agent-{name[0]}", fingerprint=b"", body=b"{}", labels=labels)
            for name in names
        ]
    )
    store.register_session(NewSession(id="dead", host="here", pid=1))
    store.claim_runs("dead", 4, {"agent-d": 1, "agent-t": 1, "agent-p": 1, "agent-a": 1})
    end = write_body(None, value=b'{"ok":true}')
    commit(store, "done", (Kind.END, "", end), change=End(State.COMPLETED))
    commit(store, "torn", *BODIES)
    commit(store, "parked", change=Park(store.now_ms() + 3_600_000, f"the mail {NASTY}", 0))
    question = NewItem(
        id="q1", kind=ItemKind.QUESTION, step="#ask#0", digest=b"d", body=b'{"what":"really?"}', to="ann"
    )
    commit(store, "asks", opens=(question,), change=Park(None, "an answer", 0))
    store.send_signal("parked", "mail", b"1")


def test_ps_says_which_runs_no_living_worker_has_the_code_of(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    store.create_runs(
        [NewRun(id=name, agent=name, fingerprint=b"", body=b"{}") for name in ("known", "lost")]
    )
    store.register_session(NewSession(id="alive", host="here", pid=1, agents=("known",), lease_ms=600_000))
    shown = ninelives(tmp_path, "ps").stdout.splitlines()
    found = {run["id"]: run["is_loaded"] for run in json.loads(ninelives(tmp_path, "ps", "--json").stdout)}
    store.close()
    (known,) = [line for line in shown if line.startswith("known")]
    (lost,) = [line for line in shown if line.startswith("lost")]
    assert "no worker has its code loaded" in lost
    assert "no worker" not in known
    assert found == {"known": True, "lost": False}


def test_ps_tells_workers_that_are_being_started_from_code_that_nobody_has(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    store.create_runs([NewRun(id="run", agent="known", fingerprint=b"", body=b"{}")])
    store.register_session(NewSession(id="supervisor", host="here", pid=1, lease_ms=600_000))
    starting = ninelives(tmp_path, "ps").stdout
    store.register_session(
        NewSession(id="w", host="here", pid=2, agents=("other",), keeper="supervisor", lease_ms=600_000)
    )
    missing = ninelives(tmp_path, "ps").stdout
    store.close()
    assert "its workers are being started" in starting
    assert "no worker has its code loaded" in missing


def test_recoveries_tells_what_died_and_what_came_of_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    assert "no worker has died" in ninelives(tmp_path, "recoveries").stderr
    store.create_runs([NewRun(id="run", agent="a", fingerprint=b"", body=b"{}")])
    assert "while it held this run" in ninelives(tmp_path, "recoveries", "run").stderr
    nobody = ninelives(tmp_path, "recoveries", "nobody")
    assert (nobody.returncode, "there is no such run" in nobody.stderr) == (2, True)
    store.register_session(NewSession(id="first", host="here", pid=42))
    store.claim_runs("first", 1, {"a": 1})
    store.end_sessions(["first"], Cause.DIED, evidence={"first": Evidence(is_gone=True, signal=9)})
    recovery = Recovery(
        left_by="first",
        cause=Cause.DIED,
        died_ms=1000,
        renewed_ms=900,
        taken_ms=1005,
        progress_ms=1012,
        deaths=1,
        records=8,
        replayed=5,
        decisions=2,
        tokens=700,
        redone=("#charge#0",),
        verified=Verified(records=8, outcomes=5, resources=0, keys=0),
    )
    body = msgspec.json.encode(recovery)
    store.append_log([NewEntry(kind=Happening.RECOVERED, run="run", session="second", body=body)])
    shown = ninelives(tmp_path, "recoveries", "run").stdout
    every = json.loads(ninelives(tmp_path, "recoveries", "--json").stdout)
    assert "12 ms" in shown
    assert "5 steps replayed" in shown
    assert "(saved 2 model calls, 700 tokens)" in shown
    assert "interrupted: charge[0]" in shown
    assert [one["kind"] for one in every] == ["recovered", "left", "ended"]
    assert "killed by SIGKILL" in every[-1]["text"]
    assert "its worker was killed by SIGKILL" in every[1]["text"]
    assert every[0]["facts"]["replayed"] == 5
    assert "resumed 12 ms" in last_recovery(store, "run")
    assert last_recovery(store, "other") == ""
    (line,) = [one for one in ninelives(tmp_path, "show", "run").stdout.splitlines() if "recovered" in one]
    assert "resumed 12 ms after that was noticed" in line
    assert (
        "5 steps replayed" in json.loads(ninelives(tmp_path, "show", "run", "--json").stdout)["last_recovery"]
    )
    store.close()


def test_recoveries_says_of_a_deploy_that_it_was_a_stop_and_of_a_hang_where_it_hung(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    stacks = ('File "agents.py", line 7 in wait_for_it', 'File "agents.py", line 9 in job')
    seen = {
        "deployed": (Cause.STOPPED, Evidence(is_gone=True, signal=9, note="killed by SIGKILL")),
        "hung": (
            Cause.DIED,
            Evidence(is_gone=True, signal=9, note=f"{HUNG} for 5 s, so it was killed", log=stacks),
        ),
    }
    for name, (cause, evidence) in seen.items():
        store.create_runs([NewRun(id=name, agent=name, fingerprint=b"", body=b"{}")])
        store.register_session(NewSession(id=f"s-{name}", host="here", pid=42))
        store.claim_runs(f"s-{name}", 1, {name: 1})
        store.end_sessions([f"s-{name}"], cause, evidence={f"s-{name}": evidence})
    for words in (("deployed",), ()):
        (ended,) = [
            line
            for line in ninelives(tmp_path, "recoveries", *words).stdout.splitlines()
            if "s-deployed" in line
        ][-1:]
        assert "was stopped (by SIGTERM, or for new code)" in ended
        assert "SIGKILL" not in ended
        assert "death" not in ended
    for command in (("recoveries", "hung"), ("recoveries",), ("show", "hung")):
        assert "line 7 in wait_for_it" in ninelives(tmp_path, *command).stdout, command
    hung = ninelives(tmp_path, "recoveries", "hung").stdout
    assert "its worker hung: its event loop was blocked for 5 s" in hung
    store.close()


def _fail(store: SqliteStore, run: str, error: BaseException) -> None:
    body = write_body(None, error=encode_error(error))
    row = store.read_run(run)
    assert row is not None
    (record,) = chain.seal(row.length, row.head, [(Kind.END, "", store.now_ms(), body, ())], row.epoch)
    tally = added(tally_of(row), Kind.END, "", body, Facts(error=error_text(error)))
    parts = {"run": run, "epoch": row.epoch, "length": row.length, "head": row.head, "records": (record,)}
    store.commit([Commit(**parts, tally=tally, change=End(State.FAILED))])  # type: ignore[arg-type]


def test_ps_shows_what_failed_in_the_last_day_and_why(tmp_path: Path) -> None:
    clock = SteppingClock(int(time.time() * 1000) - 2 * 86_400_000)
    store = SqliteStore(tmp_path / "runs.db", clock=clock)
    names = ("old", "waits", "late", "done")
    store.create_runs([NewRun(id=name, agent="a", fingerprint=b"", body=b"{}") for name in names])
    store.register_session(NewSession(id="s", host="here", pid=1, lease_ms=10**9))
    store.claim_runs("s", 10, {"a": 10})
    _fail(store, "old", ValueError("two days ago"))
    clock.advance(2 * 86_400_000 - 3_600_000)
    _fail(store, "late", ConnectionError("provider away"))
    commit(store, "done", (Kind.END, "", write_body(None, value=b"1")), change=End(State.COMPLETED))
    store.close()
    shown = ninelives(tmp_path, "ps").stdout.splitlines()
    assert [line.split()[0] for line in shown[1:]] == ["late", "waits"]
    assert "ConnectionError: provider away" in shown[1]
    found = json.loads(ninelives(tmp_path, "ps", "--json", "--limit", "1").stdout)
    assert [(run["id"], run["error"]) for run in found] == [("late", "ConnectionError: provider away")]
    following = json.loads(ninelives(tmp_path, "ps", "--json", "--after", str(found[0]["number"])).stdout)
    assert [run["id"] for run in following] == ["waits"]


def test_a_retry_is_shown_with_step_time_attempt_and_reason(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    store.create_runs([NewRun(id="run", agent="a", fingerprint=b"", body=b"{}")])
    store.register_session(NewSession(id="s", host="here", pid=1))
    store.claim_runs("s", 1, {"a": 1})
    due_ms = store.now_ms() + 20_000
    error = "RateLimitError: Error code: 429"
    pause = json.dumps({"attempts": 1, "due_ms": due_ms, "error": error}).encode()
    body = write_body(None, value=pause)
    row = store.read_run("run")
    assert row is not None
    records = chain.seal(row.length, row.head, [(Kind.INTENT, "#think#0", 0, body, ())], row.epoch)
    facts = Facts(StepKind.DECISION, retrying=Retrying("#think#0", 1, 58, due_ms, error))
    tally = added(tally_of(row), Kind.INTENT, "#think#0", body, facts)
    parts = {"run": "run", "epoch": row.epoch, "length": row.length, "head": row.head, "records": records}
    store.commit([Commit(**parts, tally=tally, change=Park(due_ms, "to try think again", 0))])  # type: ignore[arg-type]
    at = f"{moment(due_ms):%H:%M:%S}Z"
    expected = f"to try think[0] again at {at}, attempt 2 of 58: {error}"
    assert expected in ninelives(tmp_path, "ps").stdout
    shown = ninelives(tmp_path, "show", "run").stdout
    assert f"waits        {expected}" in shown
    assert f"last error   {error} (in step think[0], which is retried)" in shown
    assert f"attempt 1 failed, the next is at {at}: {error}" in shown
    assert "due_ms" not in shown
    store.close()


def test_ps_shows_what_has_not_ended_and_whose_session_is_dead(home: Path) -> None:
    shown = ninelives(home, "ps")
    assert shown.returncode == 0
    head, *rows = shown.stdout.splitlines()
    assert head.split() == [
        "ID",
        "AGENT",
        "STATUS",
        "TURN",
        "STEPS",
        "PROGRESS",
        "WAITS",
        "SESSION",
        "AGE",
        "UPDATED",
    ]
    assert [row.split()[0] for row in rows] == ["../../etc", "asks", "parked", "torn"]
    assert "running (session dead)" in rows[-1]
    assert "3 of 10: sorting" in rows[-1]
    assert "the mail \\x1b[31mred\\r\\n\\x9b\\u202etxet" in rows[2]
    assert all(line.isprintable() for line in shown.stdout.splitlines())


def test_ps_json_keeps_its_field_names(home: Path) -> None:
    rows = json.loads(ninelives(home, "ps", "--all", "--json").stdout)
    assert [row["id"] for row in rows] == ["../../etc", "asks", "parked", "torn", "done"]
    torn = rows[3]
    assert list(torn) == [
        *("id", "number", "agent", "status", "paused", "cancelling", "turn", "steps", "progress"),
        *("tokens_in", "tokens_out", "retrying", "waits", "is_loaded", "is_starting", "session"),
        *("next_wake_up", "deaths", "labels", "parent"),
        *("created", "updated", "fault", "error"),
    ]
    assert (torn["status"], torn["steps"]) == ("running", 1)
    assert torn["session"] == {"id": "dead", "host": "here", "pid": 1, "state": "dead", "agents": []} | {
        "lease_left_ms": torn["session"]["lease_left_ms"],
        "keeper": "",
    }
    assert torn["progress"] == {"step": 3, "of": 10, "note": "sorting"}


def test_looking_changes_nothing(home: Path) -> None:
    for words in (("ps",), ("show", "torn"), ("snapshot", "torn")):
        ninelives(home, *words)
    store = SqliteStore(home / "runs.db")
    run = store.read_run("torn")
    assert run is not None
    assert (run.state, run.session, run.deaths) == ("running", "dead", 0)
    store.close()


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (("--status", "completed"), ["done"]),
        (("--status", "running", "--status", "completed"), ["torn", "done"]),
        (("--agent", "agent-p"), ["parked"]),
        (("--label", "team=a b", "--limit", "2"), ["../../etc", "asks"]),
        (("--label", "team=x"), []),
        (("--all", "--after", "3"), ["torn", "done"]),
    ],
)
def test_ps_shows_what_was_asked_for(home: Path, words: tuple[str, ...], ids: list[str]) -> None:
    told = ninelives(home, "ps", "--json", *words)
    assert [row["id"] for row in json.loads(told.stdout)] == ids
    assert ("there are more: --after 4" in told.stderr) == ("--limit" in words)


def test_show_tells_where_a_run_is(home: Path) -> None:
    shown = ninelives(home, "show", "torn")
    assert shown.returncode == 0
    facts = {line[:13].strip(): line[13:] for line in shown.stdout.splitlines() if line}
    assert facts["status"] == "running (session dead)"
    assert facts["position"] == "step 3 of 10: sorting; 1 step recorded in turn 0"
    assert facts["pending"].startswith('b/=left/charge[1](order="7"), begun ')
    assert facts["session"] == "dead (dead): the run continues when a worker takes it over"
    assert "5 records, verified, head" in facts["journal"]
    assert all(line.isprintable() for line in shown.stdout.splitlines())


def test_show_tells_what_a_run_waits_for(home: Path) -> None:
    asked = json.loads(ninelives(home, "show", "asks", "--json").stdout)
    assert [(item["id"], item["to"], item["body"]) for item in asked["inbox"]] == [
        ("q1", "ann", {"what": "really?"})
    ]
    assert "question to ann" in ninelives(home, "show", "asks").stdout
    parked = json.loads(ninelives(home, "show", "parked", "--json").stdout)
    assert ([one["name"] for one in parked["signals"]], parked["waits"]) == (["mail"], f"the mail {NASTY}")


def test_show_json_holds_the_history_and_the_result(home: Path) -> None:
    torn = json.loads(ninelives(home, "show", "torn", "--json").stdout)
    assert [line["kind"] for line in torn["history"]] == ["created", "log", "progress", "result", "intent"]
    last = torn["history"][-1]
    assert (last["branch"], last["step"], last["number"], last["value"]) == (
        "b/=left",
        "charge",
        1,
        'order="7"',
    )
    assert json.loads(ninelives(home, "show", "done", "--json").stdout)["result"] == {"ok": True}
    short = json.loads(ninelives(home, "show", "torn", "--json", "--limit", "2").stdout)
    assert [line["seq"] for line in short["history"]] == [3, 4]


def test_show_log_shows_only_what_was_logged(home: Path) -> None:
    told = ninelives(home, "show", "torn", "--log")
    assert told.stdout.endswith("Z INFO    hello \\x1b[31mred\\r\\n\\x9b\\u202etxet\n")
    (line,) = json.loads(ninelives(home, "show", "torn", "--log", "--json").stdout)
    assert (line["level"], line["line"]) == ("INFO", f"hello {NASTY}")


def test_on_a_terminal_tables_are_drawn_and_nothing_of_a_run_steers_it(home: Path) -> None:
    outer, inner = pty.openpty()
    command = [sys.executable, "-m", "ninelives", "show", "torn", "--store", f"sqlite:///{home}/runs.db"]
    environment = {**os.environ, "TERM": "dumb", "COLUMNS": "160"}
    with subprocess.Popen(command, stdout=inner, stderr=inner, env=environment) as shown_here:
        os.close(inner)
        text = b""
        while select.select([outer], [], [], 60)[0]:
            try:
                text += os.read(outer, 65536)
            except OSError:  # the other side is closed
                break
    os.close(outer)
    assert shown_here.returncode == 0
    assert b"\\x1b[31mred" in text
    assert b"\x1b[31mred" not in text
    assert "─".encode() in text


def test_a_damaged_run_is_shown_as_such_and_hides_no_other(home: Path) -> None:
    import apsw

    database = apsw.Connection(str(home / "runs.db"))
    database.execute("UPDATE records SET body = x'7b7d' WHERE run = 2 AND seq = 3")
    database.close()
    listed = ninelives(home, "ps")
    assert listed.returncode == 0
    assert "damaged" in listed.stdout
    assert len(listed.stdout.splitlines()) == 5
    shown = ninelives(home, "show", "torn")
    assert shown.returncode == 4
    assert "DAMAGED" in shown.stdout
    assert "record 3 fails its checksum" in shown.stderr
    assert ninelives(home, "snapshot", "torn").returncode == 4
    assert not list(home.glob("*.json"))


def test_a_snapshot_holds_all_of_a_run_and_its_chain_can_be_verified_from_it(home: Path) -> None:
    told = ninelives(home, "snapshot", "torn")
    assert (told.returncode, told.stdout) == (0, "torn-4.json\n")
    path = home / "torn-4.json"
    assert path.stat().st_mode & 0o777 == 0o600
    taken = json.loads(path.read_text(encoding="utf-8"))
    assert all(line.isprintable() for line in path.read_text(encoding="utf-8").splitlines())
    assert (taken["format"], taken["version"], taken["run"]["id"]) == ("ninelives-snapshot", 2, "torn")
    assert taken["records"][2]["body"] == {"step": 3, "of": 10, "note": "sorting"}
    head = bytes.fromhex(taken["chain"]["before"])
    for one in taken["records"]:
        blobs = tuple(bytes.fromhex(digest) for digest in one["blobs"])
        body = b"" if one["body_is_blob"] else b64decode(one["body_base64"])
        of = StepKind(one["step_kind"]) if one["step_kind"] else None
        content = (Kind(one["kind"]), one["id"], one["at_ms"], body, blobs, of, one["took_ms"])
        head = chain.link(head, one["seq"], content, one["epoch"])
        assert head.hex() == one["check"]
    assert head.hex() == taken["chain"]["head"] == taken["run"]["head"]


def test_a_snapshot_never_overwrites_and_never_leaves_the_directory(home: Path) -> None:
    assert ninelives(home, "snapshot", "../../etc").stdout == "_.._etc-0.json\n"
    assert ninelives(home, "snapshot", "../../etc").stdout == "_.._etc-0.2.json\n"
    (home / "mine").write_text("keep", encoding="utf-8")
    refused = ninelives(home, "snapshot", "torn", "--out", "mine")
    assert refused.returncode == 2
    assert "exists" in refused.stderr
    assert (home / "mine").read_text(encoding="utf-8") == "keep"
    assert ninelives(home, "snapshot", "torn", "--out", "none/x.json").returncode == 2
    assert not list(home.glob(".*.tmp"))


def take_snapshot(out: str) -> None:
    """Write a snapshot of nothing."""
    snapshot.write({"run": {"id": "a", "length": 1}}, Path(out))


def test_a_snapshot_that_was_killed_as_it_was_written_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    task = "tests.e2e.test_looking_commands:take_snapshot"
    with Victim("a draft under a hidden name is left", task, path) as victim:
        victim.dies()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".a.json.")
    take_snapshot(str(path))
    assert json.loads(path.read_text(encoding="utf-8"))["run"]["id"] == "a"


def test_doctor_proves_a_store_and_warns_of_the_dead(home: Path) -> None:
    told = ninelives(home, "doctor", "--json")
    report = json.loads(told.stdout)
    levels = {finding["check"]: finding["level"] for finding in report["findings"]}
    assert list(levels) == [
        *("open", "permissions", "filesystem", "space", "schema", "anchor", "settings", "log"),
        *("probe", "latency", "clock", "sessions", "runs", "inbox", "size"),
    ]
    assert (told.returncode, report["status"], levels["probe"], levels["sessions"]) == (
        1,
        "warn",
        "ok",
        "warn",
    )


def test_doctor_sees_records_that_are_ahead_of_the_clock_in_a_run_that_was_touched_since(
    tmp_path: Path,
) -> None:
    clock = SteppingClock(now_ms=time.time_ns() // 1_000_000 + 86_400_000)
    store = SqliteStore(tmp_path / "runs.db", clock=clock)
    store.create_runs([NewRun(id="a", agent="a", fingerprint=b"", body=b"{}")])
    clock.jump(-86_400_000)
    store.control_run("a", Control.PAUSE)
    (said,) = doctor._clock(store)
    assert (said.level, "ahead of the clock" in said.what) == (Level.WARN, True)
    store.close()


def test_doctor_makes_no_store_where_there_is_none_and_is_not_green(tmp_path: Path) -> None:
    told = ninelives(tmp_path, "doctor")
    assert told.returncode == 4
    assert told.stdout.startswith("fail  open        there is no store at ")
    assert "permissions" not in told.stdout
    assert list(tmp_path.iterdir()) == []
    elsewhere = ninelives(tmp_path, "doctor", "--json", "--store", f"sqlite:///{tmp_path}/none/runs.db")
    assert (elsewhere.returncode, json.loads(elsewhere.stdout)["status"]) == (4, "fail")
    assert list(tmp_path.iterdir()) == []


def test_doctor_refuses_what_work_must_not_begin_on(tmp_path: Path) -> None:
    (tmp_path / "runs.db").write_bytes(b"not a database, and longer than nothing" * 100)
    (tmp_path / "runs.db").chmod(0o600)
    told = ninelives(tmp_path, "doctor")
    assert told.returncode == 4
    assert told.stdout.startswith("fail  open")
    assert "→ Restore it from a backup" in told.stdout


def test_doctor_warns_of_memory() -> None:
    command = [sys.executable, "-m", "ninelives", "doctor", "--store", "memory:"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 1
    assert "it is lost with the process" in told.stdout


@pytest.mark.parametrize("content", [b"", b"no database" * 100])
def test_looking_at_a_file_that_is_no_store_creates_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "runs.db").write_bytes(content)
    told = ninelives(tmp_path, "status")
    assert (told.returncode, "Corrupt" in told.stderr) == (4, True)
    assert [one.name for one in tmp_path.iterdir()] == ["runs.db"]


@pytest.mark.parametrize("words", [("ps",), ("show", "x"), ("snapshot", "x")])
def test_looking_at_a_store_that_is_not_there_does_not_make_one(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    told = ninelives(tmp_path, *words)
    assert told.returncode == 2
    assert "there is no store" in told.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "nobody"), "ninelives ps --all lists"),
        (("snapshot", "nobody"), "there is no such run"),
        (("show", "\x1b[31m"), "not printable"),
        (("ps", "--status", "flying"), "Give one of pending, running"),
        (("ps", "--label", "team"), "NAME=VALUE"),
        (("ps", "--limit", "0"), "--limit"),
    ],
)
def test_a_wrong_call_ends_with_2(home: Path, words: tuple[str, ...], said: str) -> None:
    told = ninelives(home, *words)
    assert (told.returncode, told.stdout) == (2, "")
    assert said in told.stderr
    assert "\x1b" not in told.stderr


def test_a_closed_pipe_ends_a_listing_quietly(home: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ninelives", "ps", "--store", f"sqlite:///{home}/runs.db"]
    told = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writer)
    assert (told.returncode, told.stderr) == (141, b"")


def test_asking_for_help_loads_neither_driver_nor_tables() -> None:
    code = (
        "import sys; sys.argv = ['ninelives', '--help']\n"
        "from ninelives.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print({'apsw', 'rich', 'asyncio'} & set(sys.modules), file=sys.stderr)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert told.stderr == "set()\n"


def test_the_doctor_finds_a_mount_point_whatever_its_name_is() -> None:
    mounts = ["1 0 0:1 / / rw - ext4 d d"]
    for name in ("Übung", "a\u3000b", "a\u2028b", os.fsdecode(b"\xff")):
        escaped = [*mounts, f"3 1 0:3 / /mnt/{name}\\040c rw - tmpfs d d"]
        assert filesystem_of(Path(f"/mnt/{name} c/runs.db"), escaped) == (f"/mnt/{name} c", "tmpfs")


def test_what_the_doctor_thinks_of_places_and_times() -> None:
    mounts = ["1 0 0:1 / / rw - ext4 d d", "2 1 0:2 / /mnt/a\\040b rw - tmpfs d d"]
    assert filesystem_of(Path("/mnt/a b/runs.db"), mounts) == ("/mnt/a b", "tmpfs")
    assert filesystem_of(Path("/mnt/ab/runs.db"), mounts) == ("/", "ext4")
    levels = [
        judge_filesystem("/", "ext4"),
        judge_filesystem("/", "overlay"),
        judge_space(10 << 30),
        judge_space(500 << 20),
        judge_space(1 << 20),
        judge_latency(3.0, 80.0),
        judge_latency(60.0, 80.0),
        judge_clock(2_000_000_000_000, 1_999_999_999_999),
        judge_clock(2_000_000_000_000, 2_000_000_010_000),
        judge_clock(1_000, 0),
        judge_log(8 << 20, 8 << 20),
        judge_log(80 << 20, 8 << 20),
    ]
    ok, warn, fail = Level.OK, Level.WARN, Level.FAIL
    assert [one.level for one in levels] == [ok, warn, ok, warn, fail, ok, warn, ok, warn, warn, ok, warn]
    assert all(one.remedy for one in levels if one.level is not ok)


def test_what_is_shown_is_printable_and_json_means_the_same() -> None:
    for text in (NASTY, "plain", "\ud800", "\U000e0001", "a\x00b", "日本"):
        assert shown(text).isprintable()
    for text in (NASTY, "plain", "\U000e0001", "a\x7fb", "日本"):
        seen = json_text(json.dumps([text], ensure_ascii=False).encode())
        assert seen.isprintable()
        assert json.loads(seen) == [text]


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
    os._exit(0)  # as a kill would: the session's lock is dropped, and nobody ended it
