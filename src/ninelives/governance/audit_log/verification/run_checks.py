"""Compare the runs of a store with what the audit log says of them.

A run whose end is in the log must be as it was then: its row, the number of its records, the last check, and
the SHA-256 of all records. As far as the log follows a run, each ask, answer and doubt must have an entry,
byte for byte as one is made from the record. What was pruned must be covered by an entry that says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ninelives.core.errors import Corrupt, UnknownRun
from ninelives.core.model.run import Journal, Kind, Record, RunQuery, RunRow
from ninelives.engine.commit import large_bodies
from ninelives.governance.audit_log import merkle
from ninelives.governance.audit_log.entries import digest_of as name_of
from ninelives.governance.audit_log.follower import LATE_MS, Followed
from ninelives.governance.audit_log.journal_facts import digest_of, entries_of
from ninelives.governance.audit_log.pruning import Cutoff
from ninelives.governance.audit_log.verification.effects import effects_in, unpermitted
from ninelives.governance.audit_log.verification.log_walk import (
    DocumentClaims,
    LoggedEnd,
    LoggedRecord,
    Report,
    Walked,
)
from ninelives.store import Store

_PAGE = 200
_OF_VERDICTS = (Kind.INTENT, Kind.ANSWER)


class GoneRun(Struct, frozen=True):
    """A run or its journal that is not there any more: right only if it was pruned."""

    run: str
    end: LoggedEnd
    is_row: bool


class RunChecks:
    """Checks one run after the other, and at the end what is gone and must have been pruned."""

    def __init__(self, beside: DocumentClaims, walked: Walked, report: Report) -> None:
        self._beside, self._walked, self._report = beside, walked, report
        self._governed_ms = min(walked.policies.values(), default=None)
        self._left = dict(walked.ends)
        self._records = dict(walked.records)
        self._leaves = set(walked.hashes.values())
        self._gone: list[GoneRun] = []
        self.effects = 0

    def check(self, store: Store, row: RunRow) -> None:
        """Check a run that is in the store."""
        end = self._left.pop(row.id, None)
        followed = self._beside.followed.get(name_of(row.id))
        if end is not None and end.facts.created_ms != row.created_ms:
            self._gone.append(GoneRun(row.id, end, is_row=True))  # its id was used again, for another run
            end = None
        if followed is not None and followed.created_ms != row.created_ms:
            followed = None
        try:
            journal = store.load_journal(row.id, since=0)
        except UnknownRun:
            if end is not None:
                self._gone.append(GoneRun(row.id, end, is_row=True))
            return
        except Corrupt as error:
            if end is None or not end.facts.fault:
                self._report(f"run {row.id}", str(error))
            return
        self._check_facts(journal, end, followed)
        self._check_last(journal, self._records.pop(row.id, None))
        if end is not None:
            self._check_end(journal, end)
        self._check_verdicts(journal, store)

    @property
    def is_gone(self) -> bool:
        """Whether something is gone that was in the log."""
        return bool(self._gone or self._left)

    def finish(self, cutoffs: Sequence[tuple[int, Cutoff]]) -> None:
        """Check that all that is gone was pruned by an entry of the log."""
        self._gone += [GoneRun(run, end, is_row=True) for run, end in self._left.items()]
        for run in self._records.keys() - self._walked.ends.keys():
            self._report(f"run {run}", "the run is gone, and the log does not say that it has ended")
        for one in self._gone:
            facts, at_ms = one.end.facts, one.end.at_ms
            limits = [
                limit.forget_before_ms if one.is_row else limit.journal_of(facts.agent)
                for number, limit in cutoffs
                if number > one.end.number
            ]
            if not any(at_ms < limit for limit in limits):
                what = "the run" if one.is_row else "its journal"
                self._report(f"run {one.run}", f"{what} is gone, and no entry says that it was pruned")

    def _check_facts(self, journal: Journal, end: LoggedEnd | None, followed: Followed | None) -> None:
        """Check that what the journal has is in the log, as far as the run is in it."""
        run, beside = journal.run, self._beside
        where = f"run {run.id}"
        # Whatever ended before the follower's last pass is in the log, whatever the run's document says.
        must = run.state.is_final and run.changed_ms < beside.state.through_ms - LATE_MS
        batch = beside.state.batch
        if batch is not None and run.id in batch.runs:
            return  # on its way into the log
        is_noted = followed is not None and followed.is_ended and followed.length == run.length
        if (must or is_noted) and (end is None or end.facts.length != run.length):
            self._report(where, f"it has ended as {run.state.value}, and the log does not say so")
        if followed is not None and followed.length > run.length:
            self._report(where, f"it has {run.length} records, and was followed up to {followed.length}")
        if end is not None and followed is None:
            self._report(where, "the document that says how far it is in the log is gone")
        upto = run.length if must else followed.length if followed is not None else 0
        for seq, entry in entries_of(run, journal.records):
            if seq < upto and merkle.leaf_hash(entry) not in self._leaves:
                self._report(where, f"its record {seq} is not in the log")

    def _check_last(self, journal: Journal, last: LoggedRecord | None) -> None:
        """Check that the last record that the log names is there: its check stands for all before it."""
        if last is None or last.record < journal.first:
            return
        found = [one for one in journal.records if one.seq == last.record]
        if not found or found[0].check.hex() != last.check:
            is_cut = any(one.kind is Kind.SALVAGED for one in journal.records)
            if not is_cut:  # else the log will say so
                self._report(
                    f"run {journal.run.id}", f"its record {last.record} is not the one that was logged"
                )

    def _check_end(self, journal: Journal, end: LoggedEnd) -> None:
        run, facts = journal.run, end.facts
        where = f"run {run.id}"
        if run.length < facts.length:
            self._report(where, f"it has {run.length} records, and ended with {facts.length}")
            return
        if run.state.is_final and run.length == facts.length:
            found = run.state.value, run.agent, run.head.hex()
            if found != (facts.state, facts.agent, facts.head):
                self._report(where, f"its row is not as it ended: entry {end.number}")
                return
        records = [one for one in journal.records if one.seq < facts.length]
        if not records and facts.since < facts.length:
            self._gone.append(GoneRun(run.id, end, is_row=False))
        elif journal.first > facts.since:
            self._gone.append(GoneRun(run.id, end, is_row=False))
            self._check_head(where, records, facts.head)
        elif not facts.fault and digest_of(records[facts.since - journal.first :]) != facts.sha256:
            self._report(where, f"its journal is not the one that ended: entry {end.number}")

    def _check_head(self, where: str, records: Sequence[Record], head: str) -> None:
        if records[-1].check.hex() != head:
            self._report(where, "its journal is not the one that ended")

    def _check_verdicts(self, journal: Journal, store: Store) -> None:
        wanted = [one for one in journal.records if one.kind in _OF_VERDICTS or not one.blobs]
        try:
            records = large_bodies.whole(store, wanted)
        except Corrupt as error:
            self._report(f"run {journal.run.id}", str(error))
            return
        self.effects += effects_in(records)
        for record, what in unpermitted(records, self._walked.policies, self._governed_ms):
            self._report(f"run {journal.run.id}", f"record {record.seq}: {record.step} {what}")


def rows_of(store: Store) -> Iterator[RunRow]:
    """Yield all runs, newest first."""
    after: int | None = None
    while page := store.list_runs(RunQuery(limit=_PAGE, after=after)):
        yield from page
        after = page[-1].number
