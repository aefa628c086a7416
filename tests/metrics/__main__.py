"""Let each alert fire in a real Prometheus, through Alertmanager, at a webhook.

`python -m tests.metrics [ALERT...]`. The rules are those that ship, except that an alert waits 1 s instead of
minutes. Each situation has a store, an exporter and a Prometheus of its own. It must fire its alert, and no
other.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from ninelives.core.journal.recovery_log import Recovery, Verified
from ninelives.core.model.commit import Change, End, Park
from ninelives.core.model.counter import Counter
from ninelives.core.model.inbox import ItemKind, NewItem
from ninelives.core.model.log_entry import Happening, NewEntry
from ninelives.core.model.run import State
from ninelives.core.model.session import Cause
from ninelives.core.model.totals import Retrying, Tally
from ninelives.ops.metrics import rule_files
from ninelives.ops.metrics.rules import ALERTS
from ninelives.stores.clock import SystemClock
from ninelives.stores.sqlite import SqliteStore
from tests.contract.makers import append, new_item, new_run, new_session
from tests.metrics import programs
from tests.metrics.scraping import Exporter, wait_for, waiting_notices
from tests.metrics.stack import Stack

_QUIET_SECONDS = 5.0
"""How long no other alert may fire."""


class ShiftedClock(SystemClock):
    """A clock that is behind."""

    def __init__(self, behind_ms: int) -> None:
        self._behind_ms = behind_ms

    def now_ms(self) -> int:
        """Return the wall clock, as it was."""
        return super().now_ms() - self._behind_ms


class Scene:
    """A store with one live worker, which has the code of agent a, and the exporter that reads it."""

    def __init__(self, home: Path) -> None:
        self.path = home / "runs.db"
        self.store = SqliteStore(self.path)
        self.store.register_session(new_session("worker", agents=("a",), lease_ms=3_600_000))
        self.exporter = Exporter(f"sqlite:///{self.path}")

    def ago(self, seconds: int) -> SqliteStore:
        """Open the store as of some time ago."""
        return SqliteStore(self.path, clock=ShiftedClock(seconds * 1000))

    def write(
        self,
        run: str,
        store: SqliteStore | None = None,
        *,
        tally: Tally | None = None,
        opens: tuple[NewItem, ...] = (),
        change: Change | None = None,
        session: str = "worker",
    ) -> None:
        """Create a run of agent a, claim it, and commit to it."""
        store = store or self.store
        (row,) = store.create_runs([new_run(run, agent="a")], session=session)
        claimed = store.read_run(run)
        assert claimed is not None, row
        (verdict,) = store.commit([append(claimed, b"x", tally=tally, opens=opens, change=change)])
        assert verdict.outcome == "committed", verdict

    def recover(self, outcome: str = "recovered", faults: tuple[str, ...] = (), **redone: int) -> None:
        """Log a recovery."""
        verified = Verified(records=1, outcomes=1, resources=0, keys=0, faults=faults)
        body = Recovery(
            left_by="gone", cause=Cause.DIED, died_ms=1000, renewed_ms=1, taken_ms=1, progress_ms=1100,
            deaths=1, records=1, replayed=1, decisions=0, tokens=0, redone=(), verified=verified, agent="a",
            outcome=outcome, redone_kinds=redone,
        )  # fmt: skip
        entry = NewEntry(kind=Happening.RECOVERED, run="r", session="worker", body=msgspec.json.encode(body))
        self.store.append_log([entry])


def _retrying(scene: Scene, runs: int) -> None:
    retry = Retrying("#think#0", 3, 58, 7, "ConnectionError: away", "transient")
    tally = Tally(retrying=msgspec.json.encode(retry).decode())
    for number in range(runs):
        due = scene.store.now_ms() + 600_000
        scene.write(f"r{number}", tally=tally, change=Park(due, "to try again", 0))


def _store_down(scene: Scene) -> None:
    for file in scene.path.parent.glob("runs.db*"):
        if file.is_file():
            file.unlink()


def _left(scene: Scene) -> None:
    before = scene.ago(45)
    before.register_session(new_session("gone", agents=("a",), lease_ms=3_600_000))
    scene.write("left", before, session="gone")
    before.end_sessions(["gone"], Cause.DIED)


def _begun_again(scene: Scene) -> None:
    scene.store.renew_session(
        "worker", counts=[Counter("actions", {"agent": "a", "kind": "resumable"}, 1000)]
    )
    scene.recover(resumable=5)


def _no_workers(scene: Scene) -> None:
    scene.store.create_runs([new_run("r", agent="a")])
    scene.store.end_sessions(["worker"], Cause.STOPPED)


def _die_often(scene: Scene) -> None:
    for number in range(15):
        scene.store.register_session(new_session(f"s{number}", agents=("a",)))
        scene.store.end_sessions([f"s{number}"], Cause.DIED)


def _document(scene: Scene, name: str, body: object, *counts: Counter) -> None:
    scene.store.write_document(name, msgspec.json.encode(body), version=0, counts=counts)


def _asked(scene: Scene, seconds: int, kind: ItemKind) -> None:
    before = scene.ago(seconds)
    before.register_session(new_session("earlier", agents=("a",), lease_ms=86_400_000))
    item = new_item("i", kind=kind, step="#refund#0")
    scene.write("r", before, opens=(item,), change=Park(None, "a person", 0), session="earlier")
    before.end_sessions(["earlier"], Cause.STOPPED)


def _three_days_ago(scene: Scene) -> int:
    return scene.store.now_ms() - 3 * 86_400_000


SITUATIONS: dict[str, Callable[[Scene], object]] = {
    "NineLivesExporterDown": lambda scene: scene.exporter.kill(),
    "NineLivesStoreDown": _store_down,
    "NineLivesRecoverySlow": _left,
    "NineLivesRecoveryRate": lambda scene: scene.recover("quarantined"),
    "NineLivesDuplicates": _begun_again,
    "NineLivesDuplicateProved": lambda scene: _document(
        scene, "planted", 1, Counter("duplicates", {"kind": "once"}, 1)
    ),
    "NineLivesInconsistent": lambda scene: scene.recover(faults=("key k is not what the journal says",)),
    "NineLivesNoWorkers": _no_workers,
    "NineLivesStuck": lambda scene: scene.ago(600).create_runs([new_run("r", agent="a")]),
    "NineLivesNoCode": lambda scene: scene.store.create_runs([new_run("r", agent="b")]),
    "NineLivesCrashLoop": _die_often,
    "NineLivesOutage": lambda scene: _retrying(scene, 6),
    "NineLivesRetrying": lambda scene: _retrying(scene, 1),
    "NineLivesRunsFailing": lambda scene: scene.write("r", change=End(State.FAILED)),
    "NineLivesInDoubt": lambda scene: _asked(scene, 0, ItemKind.DOUBT),
    "NineLivesInboxOld": lambda scene: _asked(scene, 7200, ItemKind.QUESTION),
    "NineLivesReplicationLag": lambda scene: _document(
        scene, "replication/s3", {"written_ms": scene.store.now_ms() - 90_000}
    ),
    "NineLivesAuditLate": lambda scene: _document(
        scene, "audit/last", {"finished_ms": _three_days_ago(scene), "seconds": 1.0}
    ),
    "NineLivesNoticesStuck": lambda scene: _document(scene, "notify/state", waiting_notices(scene.store)),
    "NineLivesStoreFull": lambda _: None,  # its store is on a small disk
}
TOO = {"NineLivesOutage": {"NineLivesRetrying"}}
"""What may fire besides, because it waits 1 s here instead of a quarter of an hour."""


def play(alert: str, home: Path) -> str:
    """Let one alert fire; return what is wrong, or nothing."""
    rules = re.sub(r"^    for: .*$", "    for: 1s", rule_files.written(), flags=re.MULTILINE)
    scene = Scene(home)
    try:
        with Stack(home / "stack", scene.exporter.port, rules) as stack:
            if alert != "NineLivesStoreFull":
                wait_for(lambda: stack.number("count_over_time(ninelives_store_up[1m])") >= 3, "no scrapes")
            SITUATIONS[alert](scene)
            try:
                wait_for(lambda: alert in stack.webhook.names(), "it did not fire")
            except AssertionError:
                return f"it did not fire; others: {sorted(stack.webhook.names())}"
            time.sleep(_QUIET_SECONDS)
            others = stack.webhook.names() - {alert} - TOO.get(alert, set())
            return f"others fired: {sorted(others)}" if others else ""
    finally:
        scene.exporter.kill()
        scene.store.close()


def on_small_disk(alert: str, home: Path) -> str:
    """Play on a disk of 64 MB."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", home], check=False)
    if done.returncode:
        raise programs.Missing("a small disk cannot be mounted")
    try:
        return play(alert, home)
    finally:
        subprocess.run(["umount", "--lazy", home], check=False)


def main() -> int:
    """Play all situations, or those named; return how many went wrong."""
    wanted = sys.argv[1:] or [rule.name for rule in ALERTS]
    wrong = 0
    for alert in wanted:
        home = Path(tempfile.mkdtemp(prefix="ninelives-alert-"))
        began = time.monotonic()
        try:
            programs.prometheus()
            programs.alertmanager()
            said = (on_small_disk if alert == "NineLivesStoreFull" else play)(alert, home)
        except programs.Missing as error:
            said = f"NOT RUN: {error}"
        finally:
            shutil.rmtree(home, ignore_errors=True)
        wrong += bool(said)
        print(f"{alert}: {said or 'fired, and no other'} ({time.monotonic() - began:.0f} s)", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(), 1))
