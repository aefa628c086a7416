"""Follow a stage in the ledger of its trial: the table of tickets, and what became of each interrupted run.

Recovery is measured per run: from the kill to the first new step of that run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from ninelives.chaos.findings.metrics import MeasuredRecovery
from ninelives.chaos.ledger import LedgerLine, What
from ninelives.core.model.run import Record
from ninelives.core.step_ids import read_step_id
from ninelives.demo.agent import SupportTicket
from ninelives.demo.kills import DECISION, moment_of

OUTCOMES = ("result", "failure")
Journals = Callable[[Sequence[str]], dict[str, Sequence[Record]]]


class Row(Struct):
    """A ticket's row in the table on the screen."""

    id: str
    title: str
    text: str
    state: str = "waiting"
    step: str = ""
    steps: int = 0
    decisions: int = 0
    crashes: int = 0
    replayed: int = 0
    recovery_seconds: float | None = None


class DemoRecovery(Struct, frozen=True):
    """One recovery of an interrupted run, with what was recorded at the kill."""

    run: str
    time: MeasuredRecovery
    steps: int
    decisions: int
    is_suspect: bool
    """Whether its worker died twice without progress: such runs are executed solo, one after the other."""


class Watcher:
    """Receives what happens; this one ignores it, the screens show it."""

    def say(self, line: str) -> None:
        """Take a line of text about an event."""

    def show(self, rows: Sequence[Row]) -> None:
        """Take the state of all tickets."""


class _Broken(Struct):
    """A run whose worker was killed and that has not recovered yet."""

    at: float
    steps: int
    decisions: int
    is_suspect: bool


class Board:
    """The tickets of one stage, as its ledger shows them."""

    def __init__(self, tickets: Sequence[SupportTicket], watcher: Watcher, journals: Journals) -> None:
        self.rows = {ticket.id: Row(ticket.id, ticket.title, ticket.text) for ticket in tickets}
        self.recoveries: list[DemoRecovery] = []
        self.checkpoints: list[dict[str, Sequence[Record]]] = []
        """The journals of the open runs at each kill."""
        self._watcher, self._journals = watcher, journals
        self._broken: dict[str, _Broken] = {}
        self._pid, self._ready_at = 0, 0.0

    def follow(self, lines: Sequence[LedgerLine]) -> None:
        """Take new lines of the ledger."""
        for line in lines:
            match line.what:
                case What.STARTED:
                    self._pid = line.data["pid"]
                case What.READY:
                    self._ready_at = line.at
                case What.BEGIN:
                    self._step(line, "begin", line.step)
                case What.STORED:
                    for kind, step in line.data["records"]:
                        self._step(line, kind, step)
                case What.FAULT:
                    self._killed(line)
        self._watcher.show(self.row_list)

    @property
    def row_list(self) -> list[Row]:
        """All rows, in the order of the tickets."""
        return list(self.rows.values())

    def _step(self, line: LedgerLine, kind: str, step: str) -> None:
        run, _, rest = step.partition(" ")
        row, found = self.rows.get(run), read_step_id(rest)
        name = found.name if found else ""
        if row is None or kind not in ("begin", "end", *OUTCOMES):
            return
        if row.state == "waiting":
            self._watcher.say(f"{run} arrived: {row.text}")
        if run in self._broken:
            self._recovered(row, line, self._broken.pop(run), name)
        row.state = "completed" if kind == "end" else "running"
        row.step = f"{name}…" if kind == "begin" else name or row.step
        row.steps += kind in OUTCOMES
        row.decisions += kind in OUTCOMES and name == DECISION

    def _killed(self, line: LedgerLine) -> None:
        number = len(self.checkpoints) + 1
        self._watcher.say(f"kill -9 {self._pid} (number {number}) while {moment_of(line)}")
        open_rows = [row for row in self.rows.values() if row.state in ("running", "crashed")]
        self.checkpoints.append(self._journals([row.id for row in open_rows]))
        for row in open_rows:
            is_suspect = row.id in self._broken  # two deaths without progress: it will run solo
            self._broken[row.id] = _Broken(line.at, row.steps, row.decisions, is_suspect)
            row.crashes += 1
            row.state = "crashed"

    def _recovered(self, row: Row, line: LedgerLine, broken: _Broken, step: str) -> None:
        seconds, load_seconds = line.at - broken.at, self._ready_at - broken.at
        time = MeasuredRecovery(0, line.life, seconds, load_seconds, step)
        one = DemoRecovery(row.id, time, broken.steps, broken.decisions, broken.is_suspect)
        self.recoveries.append(one)
        row.replayed += broken.steps
        row.recovery_seconds = seconds
        what = f"first new step {step}" if step else "the run ended"
        self._watcher.say(
            f"{row.id} recovered in {seconds * 1000:.0f} ms ({load_seconds * 1000:.0f} of them to load the "
            f"code): {broken.steps} steps replayed, {what}"
        )
