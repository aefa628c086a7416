"""Runs and their records: frozen, slotted, compared by value. What stores keep and what they answer.

Times are integers in milliseconds. Bodies are encoded values (see `codec`); stores never look inside.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from ninelives.core.model.inbox import Item, Signal

INLINE_BYTES = 64 * 1024
"""The largest body that a record, signal, item or key may carry; larger ones go to blobs."""


class State(StrEnum):
    """Where a run is in its life."""

    PENDING = "pending"
    RUNNING = "running"
    CHECKPOINTED = "checkpointed"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ESCALATED = "escalated"

    @property
    def is_final(self) -> bool:
        """Tell whether the run has ended."""
        return self in _FINAL


_FINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})


class Kind(StrEnum):
    """What a record of the journal says."""

    CREATED = "created"  # the run and its arguments; always record 0
    INTENT = "intent"  # a step is about to start
    RESULT = "result"  # a step gave its value
    FAILURE = "failure"  # a step failed for good
    VOIDED = "voided"  # a start is proved not to have happened
    WAITING = "waiting"  # a step waits for a key that another run holds
    DOUBT = "doubt"  # a start whose fate is unknown
    WITHDRAWN = "withdrawn"  # a step was cancelled
    SIGNAL = "signal"  # a signal was taken
    ASKED = "asked"  # a person is asked, or is not any more
    ANSWER = "answer"  # a person's answer was taken
    OUTPUT = "output"  # what the run's code has emitted, or withdraws
    LOG = "log"  # a line for people
    PROGRESS = "progress"  # how far the run says that it is
    HELD = "held"  # a resource is held open, and how it was found
    RELEASED = "released"  # a resource is not held any more
    UNDO = "undo"  # what to do when the run fails or is cancelled
    UNDOING = "undoing"  # the run has failed or is cancelled: from here on, what it did is undone
    FORKED = "forked"  # what comes before was recorded by another run
    SALVAGED = "salvaged"  # damaged records before this one were given up
    TURN = "turn"  # the snapshot that starts the next turn
    SUPERSEDED = "superseded"  # earlier records no longer count
    END = "end"  # the result or the error of the run


class StepKind(StrEnum):
    """What the step of a record is."""

    DECISION = "decision"
    ACTION = "action"
    READ = "read"  # an action that only reads
    BUILTIN = "built-in"  # one of our own: a sleep, a question, a signal, a child


class Record(Struct, frozen=True):
    """One entry of a run's journal.

    `check` chains it to all records before it (see `chain`). When `body` is empty and `blobs` is not,
    the first blob is the body. `step_kind` is None where the record is not of a step. `epoch` is the life
    that wrote it; `took_ms` how long the step took up to here. A record of schema 1 has none of these three.
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

    `prefix` are records that the run is born with, after record 0; numbers and checks are given anew.
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
    """The run's row: who owns it, where its journal ends, what it waits for.

    `length` counts all records ever appended; those from `base` on are still stored, and
    `base_check` is the chain before them. The current turn starts at record `turn_seq`.
    `due_ms` is when a run without an owner may be claimed; None: not before there is news.
    `news` counts what happened to the run that its owner did not do.
    `deaths` counts the sessions that died under it since record `death_length`, without progress, and
    `solo_deaths` those of them that had no other run; `is_alone` says that its owner has it that way.
    `left_by` is the session that was gone while it had the run, until the run is parked or ends.
    `effect_length` counts the records that something visible rests on: these must not be lost.
    The rest sums up the journal, so that a list of runs reads none: outcomes recorded so far, tokens that
    models said they took, what `nl.progress` said last, the last error, what is tried again (see `tally`).
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
    """Which runs to list: all given conditions hold; newest first; `after` is the last number seen."""

    states: tuple[State, ...] = ()
    agent: str | None = None
    session: str | None = None
    parent: str | None = None
    labels: dict[str, str] = {}
    limit: int = 50
    after: int | None = None


class Claims(Struct, frozen=True):
    """What `claim_runs` took, and when the next run of these agents falls due (None: no timer).

    `next_suspect_ms` is the same for runs that are only given alone. With `is_held`, runs are due that the
    store gives to nobody for a while: `next_due_ms` is then when to ask again.
    """

    runs: tuple[RunRow, ...]
    next_due_ms: int | None
    next_suspect_ms: int | None = None
    is_held: bool = False


class Journal(Struct, frozen=True):
    """What is durable of a run: its row, its records from `first` on, signals not taken, its items."""

    run: RunRow
    first: int
    records: tuple[Record, ...]
    signals: tuple[Signal, ...]
    items: tuple[Item, ...]


class News(Struct, frozen=True):
    """What happened to a run that its owner did not do: its row, signals not taken, its items, and when."""

    run: RunRow
    signals: tuple[Signal, ...]
    items: tuple[Item, ...]
    now_ms: int


class Control(StrEnum):
    """What a person or a program may ask of a run from outside."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
