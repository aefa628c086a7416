"""The audit: damage of every kind is found and named, a killed audit goes on, and two do not work at once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ninelives.core.errors import LeaseLost, StoreError
from ninelives.core.journal.replay import write_body
from ninelives.core.model.run import Kind
from ninelives.ops import audit
from ninelives.ops.audit import Auditor, AuditResult
from ninelives.ops.periodic import Turn
from tests.clocks import SteppingClock
from tests.contract.benches import STORES, Bench, make_bench
from tests.contract.makers import append, new_item, new_run, new_session, reserve
from tests.contract.test_maintenance import asked, keyed, signalled
from tests.crash import processes
from tests.crash.damage import copied, flip, flip_in
from tests.crash.stores import AnyStore, address, open_at, scratch

RUNS = 30


@pytest.fixture(params=STORES)
def bench(request: pytest.FixtureRequest, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Yield a fresh store of each kind."""
    made = make_bench(request.param, SteppingClock(), tmp_path)
    yield made
    made.close()


def audited(store: AnyStore, **options: object) -> AuditResult:
    """Audit a store without pauses."""
    auditor = Auditor(store, sleep=lambda _: None, **options)  # type: ignore[arg-type]
    turn = auditor.periodic(0).begin(at_once=True)
    assert turn is not None
    result = auditor.carry_out(turn)
    turn.succeed()
    return result


def specimen(bench: Bench) -> None:
    """Write what can be damaged."""
    (digest,) = bench.store.put_blobs([b"large"])
    bench.write(bench.running("blob"), b"", blobs=(digest,))
    keyed(bench, bench.running("key"), settles=True)
    signalled(bench, bench.running("signal"), takes=True)
    asked(bench, bench.running("item"))
    bench.write(bench.running("record"), b"x", kind=Kind.LOG)


DAMAGES: dict[str, tuple[Callable[[Bench], object], str | None]] = {
    "record": (lambda bench: bench.damage("record", 1), "record"),
    "blob": (
        lambda bench: bench.lose_blob(bench.store.load_journal("blob", since=0).records[1].blobs[0]),
        "blob",
    ),
    "key": (lambda bench: bench.lose_row("keys", "key", "k"), "key"),
    "item": (lambda bench: bench.lose_row("items", "item", "i1"), "item"),
    "session": (lambda bench: bench.lose_row("sessions", "record", "s1"), "record"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_found_and_named(bench: Bench, kind: str) -> None:
    specimen(bench)
    assert audited(bench.store).faults == 0
    damage, run = DAMAGES[kind]
    damage(bench)
    result = audited(bench.store)
    assert result.faults >= 1
    assert run in {fault.run for fault in result.found}
    assert audit.read_last(bench.reopen()) == result


def test_a_damaged_recovery_log_is_found(bench: Bench) -> None:
    bench.session("s1", lease_ms=1)
    bench.create()
    bench.store.claim_runs("s1", 1, {"helper": 1})
    bench.clock.advance(10_000)
    bench.store.end_sessions(None, "died")  # type: ignore[arg-type]
    assert audited(bench.store).faults == 0
    bench.damage_log(0)
    (fault,) = audited(bench.store).found
    assert "recovery log" in fault.what


def test_a_proved_duplicate_is_counted_once_however_often_it_is_found(bench: Bench) -> None:
    run = bench.write(bench.running(), write_body(None, value=b"1"))
    bench.write(run, write_body(None, value=b"2"))
    for _ in range(3):
        assert audited(bench.store).duplicates == {"recorded": 1, "once": 0, "key": 0}
    counted = [one for one in bench.store.read_counters() if one.name == "duplicates"]
    assert [(one.labels, one.value) for one in counted] == [({"kind": "recorded"}, 1)]


def test_a_slow_audit_that_lost_its_turn_stops(bench: Bench) -> None:
    specimen(bench)
    auditor = Auditor(bench.store, sleep=lambda _: bench.clock.advance(61_000), save_seconds=0)
    turn = auditor.periodic(0).begin(at_once=True)
    assert turn is not None
    bench.clock.advance(61_000)
    other = auditor.periodic(0).begin(at_once=True)
    assert other is not None
    with pytest.raises(LeaseLost):
        auditor.carry_out(turn)


@pytest.mark.parametrize("which", ["flip", "rows", "index"])
def test_bit_flips_that_any_reader_finds_are_found_by_the_audit(tmp_path: Path, which: str) -> None:
    made = make_bench("sqlite", SteppingClock(), tmp_path)
    specimen(made)
    made.close()
    source = tmp_path / "source"
    source.mkdir(mode=0o700)
    for name in ("runs.db", "runs.db-anchor"):
        found = next(
            file for file in tmp_path.rglob("*.db*") if file.name.endswith(name.removeprefix("runs"))
        )
        (source / name).write_bytes(found.read_bytes())
    where = {"rows": "name IN ('keys', 'items', 'signals', 'sessions', 'runs')", "index": "type = 'index'"}
    seen = 0
    for seed in range(25):
        home = tmp_path / "copy"
        copied(source, home)
        rng = random.Random(f"{which}{seed}")
        done = flip(home, "runs.db", rng) if which == "flip" else flip_in(where[which], home, "runs.db", rng)
        try:
            store = open_at(home)
        except StoreError:
            seen += 1
            continue
        try:
            whole = store.verify()
            assert audited(store).faults == len(whole), done
            seen += bool(whole)
        except StoreError:
            seen += 1
        finally:
            store.close()
    assert seen >= 4  # most bytes of a small file say nothing


# Real processes -----------------------------------------------------------------------------------


def filled(home: Path) -> None:
    """Write runs, one of them with a fault."""
    store = open_at(home)
    store.register_session(new_session("s1", lease_ms=10_000_000, pid=os.getpid()))
    store.create_runs([new_run(f"r{n}") for n in range(RUNS)])
    for run in store.claim_runs("s1", RUNS, {"helper": RUNS}).runs:
        bodies = [b"x"] * 20
        extra = {"keys": [reserve(f"k-{run.id}")], "opens": [new_item(f"i-{run.id}")]}
        store.commit([append(run, *bodies, kind=Kind.LOG, **extra)])  # type: ignore[arg-type]
    for body in (b'{"v":1}', b'{"v":2}'):
        store.commit([append(store.read_run("r7"), body)])  # type: ignore[arg-type]
    store.close()


def _command(home: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "ninelives", "store", "audit", "--store", address(home), *words]


def _auditing(home: Path) -> None:
    store = open_at(home)
    auditor = Auditor(store, rate=2_000, save_seconds=0)
    auditor.periodic(3600, lapse_seconds=0.2).repeat(lambda turn: _noted(home, auditor, turn), _wait)


def _noted(home: Path, auditor: Auditor, turn: Turn) -> None:
    result = auditor.carry_out(turn)
    with (home / "results").open("ab") as file:
        file.write(msgspec.json.encode(result) + b"\n")


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def test_an_audit_that_is_killed_again_and_again_comes_to_its_end(ground: Path) -> None:
    filled(ground)
    rng, begun, ended = random.Random(7), set[int](), set[int]()
    results = ground / "results"
    for _ in range(8):
        pids = [processes.fork(lambda: _auditing(ground)) for _ in range(2)]
        time.sleep(rng.uniform(0.05, 0.3))
        for pid in pids:
            processes.kill(pid)
        store = open_at(ground)
        walk = audit.read_walk(store)
        begun.update([walk.started_ms] if walk is not None and not ended else [])
        # Killed between its result and the end of its turn, it is followed by another one.
        last = audit.read_last(store)
        ended.update([last.started_ms] if last is not None and not ended else [])
        store.close()
    pid = processes.fork(lambda: _auditing(ground))
    try:
        processes.until(results.exists, 30)
    finally:
        processes.kill(pid)
    first = msgspec.json.decode(results.read_bytes().splitlines()[0], type=AuditResult)
    assert begun <= (ended or {first.started_ms})  # it is one audit, which went on
    assert (first.runs, first.faults, first.duplicates["recorded"]) == (RUNS, 1, 1)
    assert [(one.run, one.duplicate) for one in first.found] == [("r7", "recorded")]
    store = open_at(ground)
    counted = [one.value for one in store.read_counters() if one.name == "duplicates"]
    store.close()
    assert counted == [1]


def test_the_command_says_what_it_found_and_a_second_one_shares_the_work() -> None:
    with scratch() as home:
        filled(home)
        both = [
            subprocess.Popen(_command(home, "--json", "--rate", "3000"), stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        said = [one.communicate(timeout=60)[0] for one in both]
        assert [one.returncode for one in both] == [1, 1]
        results = [msgspec.json.decode(one, type=AuditResult) for one in said]
        assert {(one.runs, one.faults) for one in results} == {(RUNS, 1)}
        plain = subprocess.run(
            _command(home, "--rate", "100000"), capture_output=True, text=True, check=False
        )
        assert plain.returncode == 1
        assert "r7: proved duplicate (recorded): step step#0 has two outcomes" in plain.stdout
        wrong = subprocess.run(_command(home, "--sample", "7"), capture_output=True, text=True, check=False)
        assert wrong.returncode == 2
        nowhere = subprocess.run(_command(home / "nowhere"), capture_output=True, text=True, check=False)
        assert (nowhere.returncode, (home / "nowhere").exists()) == (2, False)


def test_up_audits_beside_its_workers(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(
        "import ninelives as nl\n@nl.agent\nasync def agent() -> int:\n    return 1\n"
    )
    filled(tmp_path)
    words = ["up", "agents.py", "--processes", "1", "--audit-every", "1s", "--store", address(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-m", "ninelives", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as supervisor:
        store = open_at(tmp_path)
        try:
            processes.until(lambda: audit.read_last(store) is not None, 60)
            last = audit.read_last(store)
            assert last is not None
            assert [one.run for one in last.found] == ["r7"]
        finally:
            store.close()
            supervisor.terminate()
