"""The records: frozen, slotted, compared by value. What stores keep and what they answer.

Times are integers in milliseconds. Bodies are encoded values (see `codec`); stores never look inside.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from ninelives.core.errors import NineLivesError

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


class Record(Struct, frozen=True):
    """One entry of a run's journal.

    `check` chains it to all records before it (see `chain`). When `body` is empty and `blobs` is not,
    the first blob is the body.
    """

    seq: int
    kind: Kind
    step: str
    at_ms: int
    body: bytes
    blobs: tuple[bytes, ...] = ()
    check: bytes = b""


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


class Run(Struct, frozen=True, kw_only=True):
    """The run's row: who owns it, where its journal ends, what it waits for.

    `length` counts all records ever appended; those from `base` on are still stored, and
    `base_check` is the chain before them. The current turn starts at record `turn_seq`.
    `due_ms` is when a run without an owner may be claimed; None: not before there is news.
    `news` counts what happened to the run that its owner did not do.
    `deaths` counts the sessions that died under it since record `death_length`, without progress, and
    `solo_deaths` those of them that had no other run; `is_alone` says that its owner has it that way.
    `left_by` is the session that was gone while it had the run, until the run is parked or ends.
    `effect_length` counts the records that something visible rests on: these must not be lost.
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


class RunQuery(Struct, frozen=True, kw_only=True):
    """Which runs to list: all given conditions hold; newest first; `after` is the last number seen."""

    states: tuple[State, ...] = ()
    agent: str | None = None
    session: str | None = None
    parent: str | None = None
    labels: dict[str, str] = {}
    limit: int = 50
    after: int | None = None


class Cause(StrEnum):
    """Why a session ended. Only DIED and EXPIRED cost a life."""

    STOPPED = "stopped"  # it ended itself, or was told to (SIGTERM, a deploy)
    DIED = "died"  # its lock was dropped, or its parent saw it die
    EXPIRED = "expired"  # its lease ran out


class Fate(StrEnum):
    """What is known of a session's process and of all that it started."""

    LIVES = "lives"
    GONE = "gone"  # proved: nothing of it can act any more
    UNKNOWN = "unknown"  # it lost its runs, and may still be about


class Evidence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the end of a session looked like to who saw it; kept with the session.

    `is_gone` says that its process and all that it started were seen to be gone (waitpid, a dropped lock).
    """

    is_gone: bool = False
    signal: int | None = None
    exit_code: int | None = None
    is_oom: bool = False
    note: str = ""
    log: tuple[str, ...] = ()


class NewSession(Struct, frozen=True, kw_only=True):
    """What a worker process says of itself.

    `agents` are those whose code it has loaded. `keeper` is the session of the supervisor that started it:
    while that one lives, it alone may say that this one is dead (see `Store.end_sessions`).
    """

    id: str
    host: str
    pid: int
    code: str = ""
    lease_ms: int = 10_000
    agents: tuple[str, ...] = ()
    keeper: str = ""


class Session(Struct, frozen=True, kw_only=True):
    """One worker process's life. `left_ms` and `fate` are as they were when this was read."""

    id: str
    host: str
    pid: int
    code: str
    lease_ms: int
    agents: tuple[str, ...] = ()
    keeper: str = ""
    started_ms: int
    renewed_ms: int
    left_ms: int
    ended_ms: int | None = None
    cause: Cause | None = None
    evidence: Evidence | None = None
    fate: Fate = Fate.LIVES


class Signal(Struct, frozen=True, kw_only=True):
    """A message to a run. `number` orders a run's signals; `taken` is the record that took it."""

    run: str
    number: int
    name: str
    id: str
    body: bytes
    at_ms: int
    taken: int | None = None


class ItemKind(StrEnum):
    """Why a person is asked."""

    APPROVAL = "approval"
    QUESTION = "question"
    DOUBT = "doubt"
    DIVERGENCE = "divergence"
    DAMAGE = "damage"
    QUARANTINE = "quarantine"
    BUDGET = "budget"
    RESOURCE = "resource"


class ItemState(StrEnum):
    """Whether an inbox item still waits."""

    OPEN = "open"
    ANSWERED = "answered"
    CLOSED = "closed"


class NewItem(Struct, frozen=True, kw_only=True):
    """A question for a person. `digest` binds the answer to exactly what was shown."""

    id: str
    kind: ItemKind
    step: str
    digest: bytes
    body: bytes
    to: str = ""
    deadline_ms: int | None = None


class Item(Struct, frozen=True, kw_only=True):
    """An inbox item with its answer, if there is one."""

    id: str
    run: str
    kind: ItemKind
    step: str
    digest: bytes
    body: bytes
    to: str
    deadline_ms: int | None
    opened_ms: int
    state: ItemState = ItemState.OPEN
    answer: bytes = b""
    by: str = ""
    answered_ms: int | None = None


class KeyState(StrEnum):
    """Where a business key is in its life."""

    FREE = "free"
    RESERVED = "reserved"
    SETTLED = "settled"
    IN_DOUBT = "in doubt"
    ORPHANED = "orphaned"  # in doubt, and its owner has ended: the next asker settles it
    PRUNED = "pruned"


class Key(Struct, frozen=True, kw_only=True):
    """A row of the dedup table."""

    key: str
    action: str
    fingerprint: bytes
    run: str
    resumable: bool
    state: KeyState
    generation: int
    body: bytes
    blobs: tuple[bytes, ...]
    changed_ms: int


class ReserveKey(Struct, frozen=True, tag="reserve"):
    """Take the key for this run before its action starts."""

    key: str
    action: str
    fingerprint: bytes
    resumable: bool
    window_ms: int | None = None  # so long after it was settled, or pruned, it may be used again


class SettleKey(Struct, frozen=True, tag="settle"):
    """Record the result under the key, for all who ask."""

    key: str
    body: bytes
    blobs: tuple[bytes, ...] = ()


class ReleaseKey(Struct, frozen=True, tag="release"):
    """Proven not done: free the key for the next generation."""

    key: str


class DoubtKey(Struct, frozen=True, tag="doubt"):
    """The action under the key may or may not have happened."""

    key: str


class PassKey(Struct, frozen=True, tag="pass"):
    """A resumable action failed: free its key, which it may be tried again under, by this run or another."""

    key: str


class AdoptKey(Struct, frozen=True, tag="adopt"):
    """Take over a key in doubt whose owner has ended."""

    key: str


class WaitKey(Struct, frozen=True, tag="wait"):
    """Ask for news when the key, held by another run, is settled or freed."""

    key: str


KeyOp = ReserveKey | SettleKey | ReleaseKey | DoubtKey | PassKey | AdoptKey | WaitKey


class Park(Struct, frozen=True, tag="park"):
    """Leave the worker. With news that the owner had not seen, the run is due at once.

    `waits` goes on after "it waits": "for the signal 'paid'", "until 2027-01-01".
    """

    due_ms: int | None
    waits: str
    news_seen: int


class End(Struct, frozen=True, tag="end"):
    """End the run."""

    state: Literal[State.COMPLETED, State.FAILED, State.CANCELLED]


class Escalate(Struct, frozen=True, tag="escalate"):
    """Leave the worker until a person answers. As `Park`, news not seen makes it due at once."""

    waits: str
    news_seen: int


Change = Park | End | Escalate


class Commit(Struct, frozen=True, kw_only=True):
    """All that one run writes in one transaction; applied whole or not at all.

    `length` and `head` are the run's before it; `records` go on from there, sealed. `effect_length` is how
    many of the run's records something visible rests on by now, as far as its owner has begun it.
    """

    run: str
    epoch: int
    length: int
    head: bytes
    records: tuple[Record, ...] = ()
    keys: tuple[KeyOp, ...] = ()
    opens: tuple[NewItem, ...] = ()
    closes: tuple[str, ...] = ()
    takes: tuple[int, ...] = ()
    change: Change | None = None
    effect_length: int = 0

    @property
    def new_length(self) -> int:
        """Return the run's length after this commit."""
        return self.length + len(self.records)

    @property
    def new_head(self) -> bytes:
        """Return the run's head after this commit."""
        return self.records[-1].check if self.records else self.head

    @property
    def is_plain(self) -> bool:
        """Tell whether this only appends records of the current turn."""
        return self.change is None and self._only_appends()

    @property
    def is_plain_end(self) -> bool:
        """Tell whether this only appends records of the current turn, and completes the run."""
        change = self.change
        return isinstance(change, End) and change.state is State.COMPLETED and self._only_appends()

    def _only_appends(self) -> bool:
        if self.keys or self.opens or self.closes or self.takes:
            return False
        for record in self.records:  # noqa: SIM110 (the hot path: a generator costs as much as all the rest)
            if record.kind is Kind.TURN:
                return False
        return True


class Outcome(StrEnum):
    """How a commit came out for one run."""

    COMMITTED = "committed"
    FENCED = "fenced"  # the run is not this owner's any more; nothing of it was written
    HELD = "held"  # a key is held or settled by another run; `Verdict.key` says how
    STALE = "stale"  # a signal was taken or an item answered meanwhile: read the run again
    REFUSED = "refused"  # the content is wrong; `Verdict.error` says why


class Verdict(Struct, frozen=True):
    """A store's answer for one run of a batch."""

    run: str
    outcome: Outcome
    error: NineLivesError | None = None
    key: Key | None = None


class Claims(Struct, frozen=True):
    """What `claim_runs` took, and when the next run of these agents falls due (None: no timer).

    `next_suspect_ms` is the same for runs that are only given alone.
    """

    runs: tuple[Run, ...]
    next_due_ms: int | None
    next_suspect_ms: int | None = None


class Journal(Struct, frozen=True):
    """What is durable of a run: its row, its records from `first` on, signals not taken, its items."""

    run: Run
    first: int
    records: tuple[Record, ...]
    signals: tuple[Signal, ...]
    items: tuple[Item, ...]


class News(Struct, frozen=True):
    """What happened to a run that its owner did not do: its row, signals not taken, its items, and when."""

    run: Run
    signals: tuple[Signal, ...]
    items: tuple[Item, ...]
    now_ms: int


class Happening(StrEnum):
    """What an entry of the recovery log says."""

    ENDED = "ended"  # a session ended while it had runs
    LEFT = "left"  # a run was left by it
    TAKEN = "taken"  # a run that was left was claimed
    RECOVERED = "recovered"  # it has made progress again, or has come to an end
    COMPLETED = "completed"  # a run that had been recovered has ended


class NewEntry(Struct, frozen=True, kw_only=True):
    """Something for the recovery log. `run` is empty when it is about a session alone; `body` is JSON."""

    kind: Happening
    run: str
    session: str
    body: bytes


class Entry(Struct, frozen=True):
    """An entry of the recovery log; `check` chains it to all entries before it (see `recoverylog`)."""

    seq: int
    kind: Happening
    run: str
    session: str
    at_ms: int
    body: bytes
    check: bytes


class Control(StrEnum):
    """What a person or a program may ask of a run from outside."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
