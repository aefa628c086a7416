"""What is counted, and when. A killed process takes no count along: counters are rows of the store.

| name | labels | what one means |
| --- | --- | --- |
| `runs_started` | agent | a run was created |
| `runs_ended` | agent, outcome: completed, failed, cancelled | a run ended (again, if it was retried) |
| `runs_left` | agent, cause: stopped, died, expired | the end of a session left a run |
| `recoveries` | agent, outcome: recovered, escalated, quarantined, lost | what became of a left run |
| `recovery_bucket` | agent, cause, le | a recovery that took at most `le` and more than the `le` before |
| `recovery_ms` | agent, cause | a millisecond from the death's notice until the run writes again |
| `detection_bucket` | agent, cause, le | the same from a dead session's last renewal to the notice |
| `detection_ms` | agent, cause | a millisecond of that |
| `steps_replayed` | agent | a recovered run got a recorded outcome instead of executing the step |
| `steps_redone` | agent, kind: decision, read, resumable, once, keyed | a step under way at the death |
| `saved_decisions`, `saved_tokens`, `saved_ms` | agent | what replayed steps did not cost a second time |
| `verifications` | outcome: sound, faulty | the check of a recovered run |
| `verification_faults` | what: chain, outcome, key, resource, state | a fault that such a check found |
| `duplicates` | kind: recorded, once, key | an audit proved a duplicate (`ops.audit`); each is counted once |
| `worker_deaths` | cause: signal, oom, exit, expired, unknown | a worker died; not one that was stopped |
| `decisions` | agent | a decision was executed and its outcome recorded |
| `actions` | agent, kind: read, resumable, once, keyed | the same for an action |
| `tokens` | agent, direction: in, out | a token that such a decision reported |
| `model_requests` | agent | a request of a step that declares alternatives, a hedge or a cache |
| `hedges` | agent, outcome: won, lost, refused | a second request; `refused`: the budget had nothing left |
| `fallbacks` | agent | a request sent another way because one had failed |
| `cache_answers` | agent, near: exact, words, meaning, miss | a call that the cache answered, or did not |
| `cache_tokens` | agent | a token that an answer of the cache had cost when it was asked for |

`le` is one of `BUCKETS`, in seconds, or `+Inf`; buckets are not cumulative, and their sum is the count.
`keyed` is an action with a business key, `once` another one that is not resumable. In `steps_redone` both are
not resumable, and settled before anything is done again; `decision`, `read` and `resumable` are bodies begun
again, those of resumable actions with a key among them.
`lost` are runs whose journal cannot be read. `agent` is empty in what an older version has written.

All but the last eight are exact: they change in the transaction that causes them. `runs_started` and
`runs_ended` cost no write at all: they are counted in the rows of runs, and the stored counter, the base,
only grows when a row leaves that count (a retried run; a run that `prune` forgets). The last eight are kept
by workers as plain integers and written with each renewal of the lease into the session's row. The end of
the session adds them to the counters. So a death loses what was done since the last renewal, a third of the
lease, and no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from ninelives.core.errors import Corrupt, UsageError
from ninelives.core.journal.recovery_log import Left, Recovery
from ninelives.core.journal.settlement import read_start
from ninelives.core.model.counter import (
    CACHE_EXACT,
    CACHE_MEANING,
    CACHE_MISS,
    CACHE_TOKENS,
    CACHE_WORDS,
    DECISIONS,
    FALLBACKS,
    HEDGES_LOST,
    HEDGES_REFUSED,
    HEDGES_WON,
    KEYED,
    MODEL_REQUESTS,
    ONCE,
    READS,
    RESUMABLE,
    TOKENS_IN,
    TOKENS_OUT,
    Counter,
    Counts,
    RunCount,
    Series,
    StepCounts,
)
from ninelives.core.model.log_entry import Happening, NewEntry
from ninelives.core.model.run import Record, RunRow, State, StepKind
from ninelives.core.model.session import Cause, Evidence, Session

T = TypeVar("T")
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the durations' buckets, in seconds."""

_MOST = 2**62
_NAME_CHARACTERS, _LABEL_CHARACTERS, _LABELS = 100, 300, 8
_ENCODE = msgspec.json.Encoder(order="sorted").encode
_LABEL_READER = msgspec.json.Decoder(dict[str, str])
_COUNTS = msgspec.json.Decoder(list[tuple[str, str, int]])
_STEPS: tuple[tuple[int, str, dict[str, str]], ...] = (
    (DECISIONS, "decisions", {}),
    (READS, "actions", {"kind": "read"}),
    (RESUMABLE, "actions", {"kind": "resumable"}),
    (ONCE, "actions", {"kind": "once"}),
    (KEYED, "actions", {"kind": "keyed"}),
    (TOKENS_IN, "tokens", {"direction": "in"}),
    (TOKENS_OUT, "tokens", {"direction": "out"}),
    (MODEL_REQUESTS, "model_requests", {}),
    (HEDGES_WON, "hedges", {"outcome": "won"}),
    (HEDGES_LOST, "hedges", {"outcome": "lost"}),
    (HEDGES_REFUSED, "hedges", {"outcome": "refused"}),
    (FALLBACKS, "fallbacks", {}),
    (CACHE_EXACT, "cache_answers", {"near": "exact"}),
    (CACHE_WORDS, "cache_answers", {"near": "words"}),
    (CACHE_MEANING, "cache_answers", {"near": "meaning"}),
    (CACHE_MISS, "cache_answers", {"near": "miss"}),
    (CACHE_TOKENS, "cache_tokens", {}),
)


# Forms ---------------------------------------------------------------------------------------------


def series(name: str, **labels: str) -> Series:
    """Return a counter's name with its labels in their one written form."""
    return name, _ENCODE(labels).decode()


def summed(*parts: Counts) -> dict[Series, int]:
    """Return the sum of counts, without zeros."""
    found: defaultdict[Series, int] = defaultdict(int)
    for part in parts:
        for one, number in part.items():
            found[one] += number
    return {one: number for one, number in sorted(found.items()) if number}


def counts_of(counters: Iterable[Counter]) -> dict[Series, int]:
    """Return counters as counts."""
    return summed(*({series(one.name, **one.labels): one.value} for one in counters))


def counters_of(counts: Counts) -> list[Counter]:
    """Return counts as counters, by name and labels."""
    found = sorted(counts.items())
    return [Counter(name, _LABEL_READER.decode(labels), value) for (name, labels), value in found]


def write_counts(counts: Counts) -> str:
    """Return counts as the text of a session's row; empty if there are none."""
    return _ENCODE([(*one, number) for one, number in sorted(counts.items())]).decode() if counts else ""


def read_counts(text: str) -> dict[Series, int]:
    """Return the counts in a session's row. Raises DecodeError for what we never write."""
    return {(name, labels): number for name, labels, number in _COUNTS.decode(text)} if text else {}


def fault_in_counters(counters: Sequence[Counter]) -> UsageError | None:
    """Return what is wrong with counters that a caller wants to grow; None if nothing is."""
    for one in counters:
        texts = [(one.name, _NAME_CHARACTERS)]
        texts += [(text, _LABEL_CHARACTERS) for pair in one.labels.items() for text in pair]
        if len(one.labels) > _LABELS or not all(_is_plain(text, most) for text, most in texts):
            return UsageError(
                f"the counter {one.name!a} cannot be kept", remedy="Give it a short name and few short labels"
            )
        if type(one.value) is not int or not 0 <= one.value < _MOST:
            return UsageError(
                f"the counter {one.name!r} cannot grow by {one.value!r}", remedy="Counters only grow"
            )
    return None


def _is_plain(text: str, most: int) -> bool:
    return len(text) <= most and (not text or text.isprintable())


# Steps, in a worker --------------------------------------------------------------------------------


def of_steps(steps: Mapping[str, StepCounts]) -> list[Counter]:
    """Return what a worker has done, by agent, as counters."""
    found = []
    for agent, numbers in sorted(steps.items()):
        for at, name, labels in _STEPS:
            if numbers[at]:
                found.append(Counter(name, {"agent": agent, **labels}, numbers[at]))
    return found


# Runs ----------------------------------------------------------------------------------------------


def retried(run: RunRow) -> Counts:
    """Return the counts for a run that had ended and continues: its row no longer counts as ended."""
    return {series("runs_ended", agent=run.agent, outcome=run.state.value): 1}


def forgotten(runs: Iterable[tuple[str, str]]) -> Counts:
    """Return the counts for rows of ended runs, each an agent and a state, that are removed."""
    return summed(
        *(
            {
                series("runs_started", agent=agent): 1,
                series("runs_ended", agent=agent, outcome=state): 1,
            }
            for agent, state in runs
        )
    )


def totals(stored: Counts, live: Iterable[str], runs: Iterable[RunCount]) -> list[Counter]:
    """Return all counters: those stored, those of live sessions, and those that rows of runs are."""
    found = [stored, *map(read_counts, live)]
    for one in runs:
        found.append({series("runs_started", agent=one.agent): one.runs})
        if one.state.is_final:
            found.append({series("runs_ended", agent=one.agent, outcome=one.state.value): one.runs})
    return counters_of(summed(*found))


def run_counts(counted: Iterable[tuple[str, str, str, int]]) -> list[RunCount]:
    """Return counts of runs, each an agent, a queue, a state and a number, in their order."""
    return [RunCount(agent, queue, State(state), number) for agent, queue, state, number in sorted(counted)]


# Ends of sessions, and the recovery log --------------------------------------------------------------


def of_end(session: Session, cause: Cause, evidence: Evidence | None, handed_over: str) -> Counts:
    """Return the counts for the end of a session: what it did, and its death, if it died.

    `handed_over` are its counts if it ended itself; else those of its last renewal count.
    """
    done = read_counts(handed_over or session.counts)
    # Supervisors have no agents, and are no workers.
    if cause is Cause.STOPPED or not session.agents:
        return done
    return summed(done, {series("worker_deaths", cause=_manner(cause, evidence)): 1})


def _manner(cause: Cause, seen: Evidence | None) -> str:
    if seen is not None and seen.is_oom:
        return "oom"
    if seen is not None and seen.signal is not None:
        return "signal"
    if seen is not None and seen.exit_code is not None:
        return "exit"
    return "expired" if cause is Cause.EXPIRED else "unknown"


def kind_of_start(intent: Record) -> str:
    """Return the kind of a step that was started, by the record of its start."""
    if intent.step_kind in (StepKind.DECISION, StepKind.READ):
        return intent.step_kind.value
    with suppress(Corrupt):
        start = read_start(intent)
        if start.l > 0:  # only what must not be repeated blindly names its time limit
            return "keyed" if start.k else "once"
    return "resumable"


def of_entries(new: Iterable[NewEntry], at_ms: int) -> Counts:
    """Return the counts for new entries of the recovery log."""
    found: list[Counts] = []
    for entry in new:
        if entry.kind is Happening.LEFT and (left := _read(entry, Left)) is not None:
            found.append(_of_left(left, at_ms))
        elif entry.kind is Happening.RECOVERED and (recovery := _read(entry, Recovery)) is not None:
            found.append(_of_recovery(recovery))
    return summed(*found)


def _read(entry: NewEntry, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(entry.body, type=kind)
    except msgspec.DecodeError:
        return None  # not of ours: it says nothing that is counted


def _of_left(left: Left, at_ms: int) -> Counts:
    labels = {"agent": left.agent, "cause": left.cause.value}
    found: list[Counts] = [{series("runs_left", **labels): 1}]
    # A session that was asked to stop ended itself: nothing had to be noticed.
    if left.cause is not Cause.STOPPED and left.renewed_ms:
        found.append(_timed("detection", at_ms - left.renewed_ms, labels))
    return summed(*found)


def outcome_of(one: Recovery) -> str:
    """Return what became of a run that was taken over; empty while that is open."""
    return one.outcome or ("recovered" if one.progress_ms is not None else "")


def _of_recovery(one: Recovery) -> Counts:
    of_agent = {"agent": one.agent}
    verified = one.verified
    found: list[Counts] = [
        {
            series("steps_replayed", **of_agent): one.replayed,
            series("saved_decisions", **of_agent): one.decisions,
            series("saved_tokens", **of_agent): one.tokens,
            series("saved_ms", **of_agent): one.saved_ms,
            series("verifications", outcome="faulty" if verified.faults else "sound"): 1,
        }
    ]
    kinds = one.redone_kinds or {"resumable": len(one.redone)}
    found += [{series("steps_redone", **of_agent, kind=kind): number} for kind, number in kinds.items()]
    found += [{series("verification_faults", what=_subject(fault)): 1} for fault in verified.faults]
    found += [{series("verification_faults", what="resource"): 1} for _ in verified.stale]
    outcome = outcome_of(one)
    if outcome:
        found.append({series("recoveries", **of_agent, outcome=outcome): 1})
    if one.stood_still_ms is not None and one.cause is not None:
        found.append(_timed("recovery", one.stood_still_ms, {**of_agent, "cause": one.cause.value}))
    return summed(*found)


def _subject(fault: str) -> str:
    """Return what a fault of a recovered run concerns, by its text (`core.rules.recovery_check`)."""
    if fault.startswith("key "):
        return "key"
    if fault.startswith("state: "):
        return "state"
    return "outcome" if fault.endswith("two outcomes") else "chain"


def _timed(name: str, ms: int, labels: Mapping[str, str]) -> Counts:
    took_ms = max(0, ms)  # two clocks may disagree by a little
    le = next((f"{bound:g}" for bound in BUCKETS if took_ms <= bound * 1000), "+Inf")
    return {series(f"{name}_bucket", **labels, le=le): 1, series(f"{name}_ms", **labels): took_ms}
