"""Follow a stage in the ledger of its trial: the table of tickets, and what became of each interrupted run.

Recovery is measured per run: from the kill to the first new step of that run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ninelives.chaos.findings.metrics import MeasuredRecovery
from ninelives.chaos.ledger import LedgerLine, What
from ninelives.core.journal.replay import read_body
from ninelives.core.model.run import Kind, Record
from ninelives.core.step_ids import read_step_id
from ninelives.demo.kills import DECISION, moment_of
from ninelives.demo.tickets import SupportTicket

Journals = Callable[[Iterable[str]], dict[str, list[Record]]]
"""Returns the journals of runs that exist."""


class Row(Struct):
    """A ticket's row in the table on the screen."""

    ticket: SupportTicket
    state: str = "waiting"
    step: str = ""
    steps: int = 0
    decisions: int = 0
    crashes: int = 0
    replayed: int = 0
    killed_at: float | None = None
    """When its worker was killed, if it has not recovered since."""
    is_suspect: bool = False
    """Whether its worker died twice without progress: such runs are executed solo, one after the other."""
    recovery_seconds: float | None = None


class DemoRecovery(MeasuredRecovery, frozen=True, kw_only=True):
    """One recovery of an interrupted run, which has recorded so many decisions."""

    run: str
    decisions: int
    is_suspect: bool


class Watcher:
    """Receives what happens; this one ignores it, the screens show it."""

    def say(self, line: str) -> None:
        """Take a line of text about an event."""

    def show(self, rows: Sequence[Row]) -> None:
        """Take the state of all tickets."""


class TicketBoard:
    """The tickets of one stage, as its ledger shows them."""

    def __init__(self, tickets: Sequence[SupportTicket], watcher: Watcher, journals: Journals) -> None:
        self.rows = {ticket.id: Row(ticket) for ticket in tickets}
        self.recoveries: list[DemoRecovery] = []
        self.results: dict[str, Any] = {}
        """The replies, by ticket; a ticket that was not completed has none."""
        self.checkpoints: list[bool] = []
        """For each run that a kill interrupted: whether its journal of that moment is unchanged."""
        self._watcher, self._journals = watcher, journals
        self._at_kills: list[dict[str, list[Record]]] = []
        self._pid, self._ready_at = 0, 0.0

    def follow(self, lines: Iterable[LedgerLine]) -> None:
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
                    for kind, step in line.records:
                        self._step(line, kind, step)
                case What.FAULT:
                    self._killed(line)
        self._watcher.show(list(self.rows.values()))

    def close(self) -> None:
        """Read how the runs ended, when the trial is over."""
        journals = self._journals(self.rows)
        for run, records in journals.items():
            if records[-1].kind is Kind.END:
                reply = read_body(records[-1]).v
                self.rows[run].state = "completed" if reply else "failed"
                self.results |= {run: msgspec.json.decode(reply)} if reply else {}
        self.checkpoints = [
            journals[run][: len(records)] == records
            for journal in self._at_kills
            for run, records in journal.items()
        ]
        self.follow(())

    def _step(self, line: LedgerLine, kind: str, step: str) -> None:
        run, _, rest = step.partition(" ")
        row, found = self.rows.get(run), read_step_id(rest)
        name, is_outcome = found.name if found else "", kind in ("result", "failure")
        if row is None or not (is_outcome or kind in ("begin", "end")):
            return
        if row.state == "waiting":
            self._watcher.say(f"{run} arrived: {row.ticket.text}")
        if row.killed_at is not None:
            self._recovered(row, line, row.killed_at, name)
        row.state = "completed" if kind == "end" else "running"
        row.step = f"{name}…" if kind == "begin" else name or row.step
        row.steps += is_outcome
        row.decisions += is_outcome and name == DECISION

    def _killed(self, line: LedgerLine) -> None:
        number = len(self._at_kills) + 1
        self._watcher.say(f"kill -9 {self._pid} (number {number}) while {moment_of(line)}")
        hit = {run: row for run, row in self.rows.items() if row.state in ("running", "crashed")}
        self._at_kills.append(self._journals(hit))
        for row in hit.values():
            row.is_suspect = row.killed_at is not None
            row.killed_at, row.state, row.crashes = line.at, "crashed", row.crashes + 1

    def _recovered(self, row: Row, line: LedgerLine, killed_at: float, step: str) -> None:
        run, seconds, load_seconds = row.ticket.id, line.at - killed_at, self._ready_at - killed_at
        times = (0, line.life, seconds, load_seconds, step)
        one = DemoRecovery(*times, run=run, decisions=row.decisions, is_suspect=row.is_suspect)
        self.recoveries.append(one)
        row.replayed += row.steps
        row.recovery_seconds, row.killed_at = seconds, None
        what = f"first new step {step}" if step else "the run ended"
        self._watcher.say(
            f"{run} recovered in {seconds * 1000:.0f} ms ({load_seconds * 1000:.0f} of them to load the "
            f"code): {row.steps} steps replayed, {what}"
        )
