"""Anchors, verification, proofs and removals of the audit log, with killed processes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ninelives.core.errors import BadFile, Corrupt, UsageError
from ninelives.core.journal.answers import Answer, Says, Taken
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Control, Kind, RunRow
from ninelives.governance.audit_log import entries, follower, merkle, proofs, pruning
from ninelives.governance.audit_log.anchoring import anchors, heads
from ninelives.governance.audit_log.anchoring.git_anchor import GitAnchor
from ninelives.governance.audit_log.anchoring.heads import TreeHead
from ninelives.governance.audit_log.follower import catch_up
from ninelives.governance.audit_log.verification.verify import verify
from ninelives.ops import retention
from ninelives.ops.replication.opening import open_bucket
from ninelives.runtime.run import give_control
from tests.clocks import SteppingClock
from tests.contract.benches import STORES, Bench, make_bench
from tests.crash.killing import KillingStore, KillPoint
from tests.governance.audit_scene import answered, ended, killed, logged, of_kind

_PAGE = Path(__file__).parents[2] / "docs" / "audit-log.md"


@pytest.fixture(params=STORES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(request.param, SteppingClock(), tmp_path)
    yield made
    made.close()


def _log(bench: Bench, runs: int = 3) -> None:
    """Fill a store and its log, and let all of it count as logged."""
    entries.switch(bench.store, on=True, by="ada")
    for number in range(runs):
        ended(bench, answered(bench, bench.running(f"r{number}")))
    catch_up(bench.store)
    bench.clock.advance(10 * follower.LATE_MS)
    catch_up(bench.store)


def _at(bench: Bench, target: Any) -> list[tuple[str, bytes]]:
    anchors.anchor(bench.store, target, anchors.head_of(bench.store), None)
    return list(anchors.notes(target))


def _findings(bench: Bench, anchored: Any = ()) -> list[str]:
    return [one.what for one in verify(bench.store, anchored).findings]


def test_a_sound_log_verifies_and_a_changed_one_does_not_on_each_store(bench: Bench, tmp_path: Path) -> None:
    _log(bench)
    target = open_bucket(f"file://{tmp_path}/anchor")
    anchored = _at(bench, target)
    report = verify(bench.reopen(), anchored)
    assert (report.findings, report.entries, report.anchored) == ([], 10, 10)
    assert report.runs == 3
    bench.damage("r1", 2)
    assert any("damaged" in one for one in _findings(bench))
    for document in bench.store.read_documents("auditlog/tile/"):
        changed = document.body.replace(b'"ada"', b'"eve"')
        bench.store.write_document(document.name, changed, version=document.version)
    assert any("hashes are not those" in one for one in _findings(bench))
    assert any("not those that were anchored" in one for one in _findings(bench, anchored))
    with pytest.raises(Corrupt, match="was cut or changed"):
        _at_after_more(bench, target)


def _at_after_more(bench: Bench, target: Any) -> None:
    entries.append(bench.store, "halt", id="h1")
    _at(bench, target)


def test_two_anchor_at_once_and_a_second_log_is_refused(bench: Bench, tmp_path: Path) -> None:
    _log(bench)
    target = open_bucket(f"file://{tmp_path}/anchor")
    faults: list[BaseException] = []

    def work(store: Any) -> None:
        try:
            for number in range(5):
                entries.append(store, "x", id=f"x{number}")
                anchors.anchor(store, target, anchors.head_of(store), None)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(bench.reopen(),)) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    # One may find that the other anchored a larger tree head than its own: it did not see that entry yet.
    assert all(isinstance(one, Corrupt) and "entries, and" in str(one) for one in faults)
    assert _findings(bench, list(anchors.notes(target))) == []
    other = TreeHead("ab" * 16, 3, b"x" * 32)
    assert "of another log" in _findings(bench, [("given", heads.write_note(other))])[0]


@pytest.mark.parametrize("kind", ["directory", "git"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_killed_while_anchoring(kind: str, side: Any, tmp_path: Path) -> None:
    for number in count(1):
        home = tmp_path / str(number)
        home.mkdir()
        clock = SteppingClock()
        bench = make_bench("sqlite", clock, home)
        _log(bench, 1)
        bench.close()
        _git(home) if kind == "git" else None

        def target(home: Path = home) -> Any:
            return GitAnchor(str(home / "git")) if kind == "git" else open_bucket(f"file://{home}/anchor")

        def work(bench: Bench = bench, number: int = number, target: Any = target) -> None:
            store, calls = bench.open(), KillingStore(target(), KillPoint(number, side))
            if kind == "git":  # each command of git is a call
                git = target()
                real, trap = git._run, KillingStore(_Called(), KillPoint(number, side))
                git._run = lambda *words: (trap.call(), real(*words))[1]
                calls = git
            anchors.anchor(store, calls, anchors.head_of(store), None)

        was_killed = killed(work)
        bench = make_bench("sqlite", clock, home)
        for where, content in anchors.notes(target()):
            heads.read_note(content, where)  # whole, or not there
        anchors.anchor(bench.store, target(), anchors.head_of(bench.store), None)
        assert _findings(bench, list(anchors.notes(target()))) == []
        assert len(list(anchors.notes(target()))) == 1
        bench.close()
        if not was_killed:
            assert number > 2
            return


class _Called:
    def call(self) -> None:
        """Do nothing."""


def _git(home: Path) -> None:
    repository = home / "git"
    for words in (
        ["init", "-q", str(repository)],
        ["-C", str(repository), "config", "user.name", "x"],
        ["-C", str(repository), "config", "user.email", "x@example.org"],
    ):
        subprocess.run(["git", *words], check=True, capture_output=True)


def test_a_bucket_of_a_real_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.servers import s3

    for name, value in s3.shared().environment.items():
        monkeypatch.setenv(name, value)
    bench = make_bench("memory", SteppingClock(), tmp_path)
    _log(bench)
    target = open_bucket(s3.fresh_url())
    anchored = _at(bench, target)
    assert anchored == _at(bench, target)
    assert _findings(bench, anchored) == []
    bench.close()


@pytest.mark.parametrize("form", ["pem", "openssh"])
def test_signatures(form: str, tmp_path: Path) -> None:
    if form == "pem":
        _run("openssl", "genpkey", "-algorithm", "ed25519", "-out", f"{tmp_path}/key")
        _run("openssl", "pkey", "-in", f"{tmp_path}/key", "-pubout", "-out", f"{tmp_path}/key.pub")
    else:
        from cryptography.hazmat.primitives import serialization as kinds
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        made = Ed25519PrivateKey.generate()
        openssh = kinds.PrivateFormat.OpenSSH
        private = made.private_bytes(kinds.Encoding.PEM, openssh, kinds.NoEncryption())
        (tmp_path / "key").write_bytes(private)
        public = made.public_key().public_bytes(kinds.Encoding.OpenSSH, kinds.PublicFormat.OpenSSH)
        (tmp_path / "key.pub").write_bytes(public)
    key, public_key = heads.signing_key(tmp_path / "key"), heads.public_key(tmp_path / "key.pub")
    bench = make_bench("memory", SteppingClock(), tmp_path)
    _log(bench)
    signed = heads.write_note(anchors.head_of(bench.store), key)
    assert verify(bench.store, [("a", signed)], public_key).findings == []
    unsigned = heads.write_note(anchors.head_of(bench.store))
    cut = signed.replace(b"= \n", b"\n")[:-9] + b"AAAAAAA=\n"
    for wrong in (unsigned, cut):
        assert verify(bench.store, [("a", wrong)], public_key).findings != []
    with pytest.raises(BadFile):
        heads.read_note(signed[:40], "it")
    for path in ("key.pub", "none"):
        with pytest.raises(UsageError):
            heads.signing_key(tmp_path / path)
    bench.close()


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


# Verdicts ------------------------------------------------------------------------------------------


def _started(bench: Bench, run: RunRow, verdict: dict[str, Any] | None) -> RunRow:
    body: dict[str, Any] = {"f": "aa", "w": "s1"} | ({"j": verdict} if verdict is not None else {})
    return bench.write(run, msgspec.json.encode(body), kind=Kind.INTENT)


@pytest.mark.parametrize(
    ("verdict", "approves", "wrong"),
    [
        ({"v": "a", "p": "known"}, False, None),
        ({"v": "r", "p": "known"}, False, None),
        ({"v": "q", "p": "known"}, True, None),
        ({"v": "q", "p": "known"}, False, "has not approved it"),
        ({"v": "d", "p": "known"}, False, "although it was denied"),
        ({"v": "d", "p": "known"}, True, "although it was denied"),
        ({"v": "a", "p": "other"}, False, "that the log does not name"),
        ({"v": "?", "p": "known"}, False, "permits nothing"),
        (None, False, "without a verdict"),
        (None, True, None),
    ],
)
def test_no_effect_without_a_permitting_verdict(
    verdict: dict[str, Any] | None, approves: bool, wrong: str | None, tmp_path: Path
) -> None:
    bench = make_bench("memory", SteppingClock(5), tmp_path)
    entries.switch(bench.store, on=True)
    before = _started(bench, bench.running("before"), None)  # nothing governed yet
    assert _findings(bench) == []
    bench.clock.advance(100)
    entries.append(bench.store, "policy loaded", id="policy/known", digest="known")
    run = bench.running("r1")
    if approves:
        taken = Taken("i", ItemKind.APPROVAL, "ada", 7, Answer(Says.APPROVED))
        run = bench.write(run, msgspec.json.encode(taken), kind=Kind.ANSWER, at_ms=1000)
    body: dict[str, Any] = {"w": "s1"} | ({"j": verdict} if verdict is not None else {})
    bench.write(run, msgspec.json.encode(body), kind=Kind.INTENT, at_ms=1000)
    report = verify(bench.store)
    assert report.effects == 2
    assert before.length == 2
    assert [one.what for one in report.findings if wrong is None or wrong not in one.what] == []
    assert bool(report.findings) is (wrong is not None)
    bench.close()


def test_denials_and_rewrites_are_entries(tmp_path: Path) -> None:
    bench = make_bench("memory", SteppingClock(), tmp_path)
    entries.switch(bench.store, on=True)
    denied = {"j": {"v": "d", "p": "known", "r": ["large"], "why": "too much"}, "e": {}}
    run = bench.write(bench.running("r1"), msgspec.json.encode(denied), kind=Kind.FAILURE)
    bench.write(run, b'{"v":"\\"j\\":"}', kind=Kind.RESULT)
    catch_up(bench.store)
    (found,) = of_kind(bench.store, "denied")
    assert (found["rules"], found["why"], found["policy"]) == (["large"], "too much", "known")
    bench.close()


# Removals and controls -----------------------------------------------------------------------------


def test_a_run_is_not_pruned_before_its_end_is_logged(bench: Bench) -> None:
    entries.switch(bench.store, on=True)
    ended(bench, bench.running("r1"))
    bench.clock.advance(1000)
    now_ms = bench.clock.now_ms()
    assert retention.prune(bench.store, ended_before_ms=now_ms, forget_before_ms=now_ms).journals == 0
    bench.clock.advance(2 * follower.LATE_MS)
    now_ms = bench.clock.now_ms()
    assert retention.prune(bench.store, ended_before_ms=now_ms).journals == 1
    bench.clock.advance(2 * follower.LATE_MS)
    catch_up(bench.store)
    assert _findings(bench) == []
    assert retention.prune(bench.store, ended_before_ms=now_ms, forget_before_ms=now_ms).runs == 1
    assert _findings(bench) == []
    # The same without an entry that says so.
    ended(bench, bench.running("r2"))
    bench.clock.advance(2 * follower.LATE_MS)
    catch_up(bench.store)
    bench.store.prune(ended_before_ms=bench.clock.now_ms())
    assert _findings(bench) == ["its journal is gone, and no entry says that it was pruned"]


def test_a_damaged_log_stops_removals(tmp_path: Path) -> None:
    bench = make_bench("memory", SteppingClock(), tmp_path)
    _log(bench)
    found = bench.store.read_documents("auditlog/tile/")[0]
    bench.store.write_document(found.name, b"{}", version=found.version)
    with pytest.raises(Corrupt):
        pruning.permitted(bench.store, pruning.Cutoff(ended_before_ms=bench.clock.now_ms()))
    bench.close()


def test_a_control_is_logged_before_it_is_given(bench: Bench) -> None:
    entries.switch(bench.store, on=True)
    bench.create("r1")
    give_control(bench.store, "r1", Control.PAUSE)
    with pytest.raises(UsageError):
        give_control(bench.store, "r2", Control.CANCEL)
    given = [(one["control"], one["run"]) for one in of_kind(bench.store, "control")]
    assert given == [("pause", "r1"), ("cancel", "r2")]
    assert bench.row("r1").paused


# Proofs --------------------------------------------------------------------------------------------


def _program() -> str:
    found = re.search(r"cat > check_proof.py <<'PY'\n(.*?)\nPY\n", _PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def _check(proof: Path, head: Path, capsys: pytest.CaptureFixture[str]) -> str:
    before, sys.argv = sys.argv, ["check_proof.py", str(proof), str(head)]
    try:
        exec(compile(_program().replace("open(", "_open("), "check_proof.py", "exec"), {"_open": _opened})
    except SystemExit as error:
        return str(error)
    finally:
        sys.argv = before
    return capsys.readouterr().out


def _opened(name: str, encoding: str = "utf-8") -> Any:
    import io

    return io.StringIO(Path(name).read_text(encoding=encoding))


def test_the_program_of_the_page_checks_each_proof(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = make_bench("memory", SteppingClock(), tmp_path)
    entries.switch(bench.store, on=True)
    proof, note = tmp_path / "proof.json", tmp_path / "note"
    for size in range(1, 20):
        head = anchors.head_of(bench.store)
        assert head.size == size
        note.write_bytes(heads.write_note(head))
        for index in range(size):
            made = proofs.prove(bench.store, head, str(index))
            proof.write_bytes(msgspec.json.encode(made))
            assert _check(proof, note, capsys).startswith("{")
            wrong = msgspec.structs.replace(made, entry=made.entry.replace("}", ',"x":1}', 1))
            proof.write_bytes(msgspec.json.encode(wrong))
            assert _check(proof, note, capsys) == "NOT PROVED"
            for other in range(size):
                if other != index:
                    proof.write_bytes(msgspec.json.encode(msgspec.structs.replace(made, index=other)))
                    assert _check(proof, note, capsys) == "NOT PROVED", (size, index, other)
        entries.append(bench.store, "x", id=f"x{size}", of=size)
    bench.close()


def test_a_run_and_an_entry_are_proved_by_name_also_in_an_anchored_log(tmp_path: Path) -> None:
    bench = make_bench("memory", SteppingClock(), tmp_path)
    _log(bench)
    old = anchors.head_of(bench.store)
    entries.append(bench.store, "halt", id="h1")
    assert json.loads(proofs.prove(bench.store, old, "r1").entry)["facts"]["run"] == "r1"
    assert proofs.prove(bench.store, anchors.head_of(bench.store), "h1").index == 10
    with pytest.raises(UsageError, match="which this tree head covers"):
        proofs.prove(bench.store, old, "h1")
    with pytest.raises(UsageError, match="no entry"):
        proofs.prove(bench.store, old, "r9")
    with pytest.raises(Corrupt):
        proofs.prove(bench.store, msgspec.structs.replace(old, root=b"x" * 32), "r1")
    bench.close()


def _continues(proof: proofs.ConsistencyProof) -> bool:
    """Check a proof of consistency as RFC 9162, section 2.1.4.2, says."""
    path = [bytes.fromhex(one) for one in proof.path]
    old, new = bytes.fromhex(proof.old_root), bytes.fromhex(proof.root)
    if proof.old_size == proof.size:
        return not path and old == new
    if proof.old_size & (proof.old_size - 1) == 0:
        path = [old, *path]
    at, last = proof.old_size - 1, proof.size - 1
    while at % 2:
        at, last = at >> 1, last >> 1
    one = other = path[0]
    for step in path[1:]:
        if last == 0:
            return False
        if at % 2 or at == last:
            one, other = sha256(b"\1" + step + one).digest(), sha256(b"\1" + step + other).digest()
            while at and at % 2 == 0:
                at, last = at >> 1, last >> 1
        else:
            other = sha256(b"\1" + other + step).digest()
        at, last = at >> 1, last >> 1
    return (one, other, last) == (old, new, 0)


def test_a_log_is_proved_to_continue_each_older_one(tmp_path: Path) -> None:
    bench = make_bench("memory", SteppingClock(), tmp_path)
    entries.switch(bench.store, on=True)
    older = [anchors.head_of(bench.store)]
    for number in range(24):
        entries.append(bench.store, "x", id=f"x{number}")
        older.append(anchors.head_of(bench.store))
        for old in older:
            proof = proofs.prove_continues(bench.store, old, older[-1])
            assert _continues(proof), (old.size, older[-1].size)
            wrong = msgspec.structs.replace(proof, old_root=merkle.leaf_hash(b"x").hex())
            assert not _continues(wrong)
    wrong_head = TreeHead(older[3].log, 3, merkle.leaf_hash(b"x"))
    with pytest.raises(Corrupt, match="does not continue"):
        proofs.prove_continues(bench.store, wrong_head, older[-1])
    assert len(logged(bench.store)) == 25
    assert b64encode(older[0].root).decode() in heads.write_note(older[0]).decode()
    bench.close()
