"""Runs and their records: what stores keep and return. Frozen, slotted, compared by value.

Times are integers in milliseconds. Bodies are encoded values (see `core.values.codec`); stores never decode
them.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from ninelives.core.model.inbox import Item, Signal

INLINE_BYTES = 64 * 1024
"""The largest body that a record, signal, item or key may carry; larger ones go to blobs."""


class State(StrEnum):
    """The state of a run. `core.model.transitions` has the table of changes."""

    PENDING = "pending"
    RUNNING = "running"
    CHECKPOINTED = "checkpointed"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ESCALATED = "escalated"
    MOVED = "moved"  # to another store, or on its way there: it does not run here

    @property
    def is_final(self) -> bool:
        """Whether the run has ended."""
        return self in _FINAL


_FINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})


class Kind(StrEnum):
    """What a record of the journal says."""

    CREATED = "created"  # the run and its arguments; always record 0
    INTENT = "intent"  # a step is about to start
    RESULT = "result"  # a step returned a value
    FAILURE = "failure"  # a step failed for good
    VOIDED = "voided"  # a start proved to have had no effect
    WAITING = "waiting"  # a step waits for a key that another run holds
    DOUBT = "doubt"  # a start whose fate is unknown
    WITHDRAWN = "withdrawn"  # a step was cancelled
    SIGNAL = "signal"  # a signal was taken
    ASKED = "asked"  # an inbox item was opened, or closed unanswered
    ANSWER = "answer"  # a person's answer was taken
    OUTPUT = "output"  # what the run's code emitted, or withdrew
    LOG = "log"  # a line for people
    PROGRESS = "progress"  # the progress that the run reports
    HELD = "held"  # a resource is held open, and its condition
    RELEASED = "released"  # a resource is no longer held
    UNDO = "undo"  # what to do when the run fails or is cancelled
    UNDOING = "undoing"  # the run has failed or is cancelled: its compensations follow
    FORKED = "forked"  # the records before this one come from another run
    SALVAGED = "salvaged"  # damaged records before this one were given up
    TURN = "turn"  # the snapshot that starts the next turn
    SUPERSEDED = "superseded"  # earlier records no longer count
    END = "end"  # the result or the error of the run


class StepKind(StrEnum):
    """The kind of a record's step."""

    DECISION = "decision"
    ACTION = "action"
    READ = "read"  # an action that only reads
    BUILTIN = "built-in"  # one of our own: a sleep, a question, a signal, a child


class Record(Struct, frozen=True):
    """One entry of a run's journal.

    `check` chains it to all records before it (see `core.journal.chain`). When `body` is empty and `blobs`
    is not, the first blob is the body. `step_kind` is None where the record does not belong to a step.
    `epoch` is that of the claim that wrote it; `took_ms` is the step's duration up to here. Records of
    schema 1 lack these three.
    """

    seq: int
    kind: Kind
    step: str
    at_ms: int
    body: bytes
    blobs: tuple[bytes, ...] = ()
    check: bytes = b""
    step_kind: StepKind | None = None
    epoch: int | None = None
    took_ms: int | None = None


class NewRun(Struct, frozen=True, kw_only=True):
    """What `create_runs` needs. `fingerprint` is that of the agent's arguments.

    `prefix` are records that the run starts with, after record 0; they get new numbers and checks.
    """

    id: str
    agent: str
    fingerprint: bytes
    body: bytes
    blobs: tuple[bytes, ...] = ()
    queue: str = "default"
    pin: str | None = None
    priority: int = 0
    labels: dict[str, str] = {}
    parent: str | None = None
    due_ms: int = 0
    prefix: tuple[Record, ...] = ()


class RunRow(Struct, frozen=True):
    """The run's row: its owner, the end of its journal, what it waits for.

    `length` counts all records ever appended; those from `base` on are still stored, and `base_check` is the
    check of the record before them. The current turn starts at record `turn_seq`. `due_ms` is when a run
    without an owner may be claimed; None: only once there is news. `news` counts the changes to the run that
    its owner did not make. `deaths` counts the sessions that died with the run since record `death_length`,
    without progress, and `solo_deaths` those of them that ran it solo; `is_alone` says that the present
    owner runs it solo (see `core.rules.deaths`). `left_by` is the session that died with the run, until the
    run is parked or ends. `effect_length` counts the records that some visible effect depends on: these must
    not be lost. The rest are totals of the journal, so that listing runs reads no journals: outcomes
    recorded so far, tokens that models reported, the last `nl.progress`, the last error, the step being
    retried (see `core.model.totals`).
    """

    id: str
    number: int
    agent: str
    fingerprint: bytes
    queue: str
    pin: str | None
    priority: int
    labels: dict[str, str]
    parent: str | None
    state: State
    paused: bool
    cancelling: bool
    epoch: int
    session: str | None
    head: bytes
    length: int
    base: int
    base_check: bytes
    turn: int
    turn_seq: int
    due_ms: int | None
    waits: str
    news: int
    deaths: int
    death_length: int
    solo_deaths: int
    is_alone: bool
    left_by: str | None
    created_ms: int
    changed_ms: int
    effect_length: int = 0
    steps: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    progress: str = ""
    last_error: str = ""
    retrying: str = ""


class RunQuery(Struct, frozen=True, kw_only=True):
    """Which runs to list, newest first: those that meet all conditions. `after` is the last number seen.

    With `changed_since_ms`, only runs whose rows changed at that moment or later: for a run that has ended,
    when it ended. Together with final states, this is read from an index.
    """

    states: tuple[State, ...] = ()
    agent: str | None = None
    session: str | None = None
    parent: str | None = None
    labels: dict[str, str] = {}
    limit: int = 50
    after: int | None = None
    changed_since_ms: int | None = None


class Claims(Struct, frozen=True):
    """What `claim_runs` took, and when the next run of these agents falls due (None: no timer).

    `next_suspect_ms` is the same for suspects, which are given solo. With `is_held`, some due runs are
    withheld from all workers for a while: `next_due_ms` is then the time to claim again. `halts` is the
    version of the document `halts` (`core.model.document.HALTS`), 0 if there is none.
    """

    runs: tuple[RunRow, ...]
    next_due_ms: int | None
    next_suspect_ms: int | None = None
    is_held: bool = False
    halts: int = 0


class Journal(Struct, frozen=True):
    """What is durable of a run: its row, its records from `first` on, signals not taken yet, its items."""

    run: RunRow
    first: int
    records: tuple[Record, ...]
    signals: tuple[Signal, ...]
    items: tuple[Item, ...]


class News(Struct, frozen=True):
    """Changes to a run that its owner did not make: the row, signals not taken yet, items, the time."""

    run: RunRow
    signals: tuple[Signal, ...]
    items: tuple[Item, ...]
    now_ms: int


class Control(StrEnum):
    """A control that a person or a program applies to a run from outside."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    WAKE = "wake"
    """A parked run checks now what it waits for: what held it was not news of its own."""
