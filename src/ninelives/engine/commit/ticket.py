"""Tickets: requests to the committer, and their answers.

A tail is the known durable end of an owned run's journal; only the committer moves it. A ticket is answered
exactly once, with a verdict or with an error.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Protocol

from ninelives.core.errors import BadRecord, InvariantViolation, NineLivesError
from ninelives.core.governance.accounts import AccountOp, Requirement, Reserve, Settle
from ninelives.core.journal import chain
from ninelives.core.model.commit import Change, Commit, End, Escalate, Outcome, Park, Verdict
from ninelives.core.model.inbox import ItemKind, NewItem
from ninelives.core.model.key import (
    AdoptKey,
    DoubtKey,
    KeyOp,
    PassKey,
    ReleaseKey,
    ReserveKey,
    SettleKey,
    WaitKey,
)
from ninelives.core.model.run import INLINE_BYTES, Kind, RunRow, State
from ninelives.core.model.totals import NO_FACTS, Facts, Tally, added, tally_of
from ninelives.core.rules import validation
from ninelives.core.values import blobs
from ninelives.engine.commit.sealing import RecordCipher

Draft = (
    tuple[Kind, str, bytes]
    | tuple[Kind, str, bytes, Sequence[bytes]]
    | tuple[Kind, str, bytes, Sequence[bytes], Facts]
)
"""A record before it is numbered and chained: kind, step, body, the contents of blobs that the body refers
to, and its facts (for the totals of the run)."""


_SHAPES: tuple[list[type], ...] = ([], [list], [tuple], [list, Facts], [tuple, Facts])
Judge = Callable[[Verdict | None, NineLivesError | None], None]
OnCommit = Callable[[Sequence[Sequence[object]], "Extras"], None]
"""Called with records, each beginning with its kind and step, and what else the commit carried."""


class Tail:
    """The known durable end of the journal of an owned run.

    On the event loop of its owner: `sent` counts the tickets submitted, `answered` those whose verdict has
    reached the loop, and `barriers` are futures that wait for a number of them. `judge` is called for each
    ticket that was not committed, `on_commit` for each that was, before the ticket's own future is resolved.
    `effect_length` is the journal's length when the last effect began; the next commit writes it into the
    run's row, with `tally`, the totals of the journal.
    """

    __slots__ = (
        "answered",
        "barriers",
        "effect_length",
        "epoch",
        "head",
        "is_over",
        "judge",
        "length",
        "on_commit",
        "run",
        "sent",
        "tally",
    )

    def __init__(self, run: RunRow, judge: Judge | None = None, on_commit: OnCommit | None = None) -> None:
        self.run, self.epoch, self.length, self.head = run.id, run.epoch, run.length, run.head
        self.is_over, self.judge, self.sent, self.answered = False, judge, 0, 0
        self.on_commit = on_commit
        self.effect_length = 0
        self.tally = tally_of(run)
        self.barriers: list[tuple[int, asyncio.Future[None]]] | None = None

    def move(self, commit: Commit, outcome: Outcome, tally: Tally | None = None) -> None:
        """Apply the outcome of a commit that was chained onto this tail, and its totals, not encrypted."""
        if outcome is Outcome.COMMITTED:
            if commit.records:
                last = commit.records[-1]
                self.length, self.head = last.seq + 1, last.check
            # Only after COMMITTED: a refused commit must leave no trace in the totals.
            self.tally = tally or commit.tally or self.tally
            # Parked, escalated or ended: from here on the run may
            # have another owner, so later tickets are fenced.
            self.is_over = commit.change is not None
        elif outcome is Outcome.FENCED:
            self.is_over = True


class Home(Protocol):
    """Receives answered tickets: one call per batch, on the thread that committed it."""

    def deliver(self, tickets: Sequence[Ticket]) -> None:
        """Receive tickets that have been answered."""


class Extras:
    """The parts of a commit other than records; see `core.model.commit.Commit`.

    `is_effect`: these records must never be lost (the intent of an action that must not be repeated).
    """

    __slots__ = ("accounts", "change", "closes", "is_effect", "keys", "opens", "requires", "takes")

    def __init__(
        self,
        *,
        keys: tuple[KeyOp, ...] = (),
        opens: tuple[NewItem, ...] = (),
        closes: tuple[str, ...] = (),
        takes: tuple[int, ...] = (),
        change: Change | None = None,
        is_effect: bool = False,
        requires: tuple[Requirement, ...] = (),
        accounts: tuple[AccountOp, ...] = (),
    ) -> None:
        self.keys, self.opens, self.closes, self.takes, self.change = keys, opens, closes, takes, change
        self.is_effect, self.requires, self.accounts = is_effect, requires, accounts

    @property
    def may_be_refused(self) -> bool:
        """Whether the store may refuse this because of what other runs or people did meanwhile."""
        beside = self.keys or self.opens or self.closes or self.takes
        return bool(beside or self.requires or self.accounts)

    def check(self, run: str) -> None:
        """Check the type of every part, before a bad one can fail the other tickets of its batch.

        Raises BadRecord.
        """
        wrong: list[object] = [op for op in self.keys if not _is_sound(op)]
        wrong += [item for item in self.opens if type(item) is not NewItem or type(item.kind) is not ItemKind]
        wrong += [name for name in self.closes if type(name) is not str]
        wrong += [number for number in self.takes if type(number) is not int]
        wrong += [one for one in self.requires if not _is_sound_requirement(one)]
        wrong += [op for op in self.accounts if not _is_sound_account(op)]
        if self.change is not None and type(self.change) not in (Park, End, Escalate):
            wrong.append(self.change)
        if isinstance(self.change, End) and not State(self.change.state).is_final:
            wrong.append(self.change)
        if wrong:
            raise BadRecord(
                f"a commit cannot carry {wrong[0]!r}",
                run=run,
                remedy="See Commit in ninelives.core.model.commit",
            )


NO_EXTRAS = Extras()


def charging(accounts: tuple[AccountOp, ...]) -> Extras:
    """Return the extras of a commit that carries only these, if any: without, it stays a plain one."""
    return Extras(accounts=accounts) if accounts else NO_EXTRAS


def _is_sound(op: KeyOp) -> bool:
    if type(op) is ReserveKey:
        window = op.window_ms is None or type(op.window_ms) is int
        return window and (type(op.key), type(op.action), type(op.fingerprint)) == (str, str, bytes)
    if type(op) is SettleKey:
        return type(op.key) is str and type(op.body) is bytes
    return type(op) in (ReleaseKey, DoubtKey, PassKey, AdoptKey, WaitKey) and type(op.key) is str


def _is_sound_requirement(one: Requirement) -> bool:
    return type(one) is Requirement and type(one.name) is str and type(one.version) is int


def _is_sound_account(op: AccountOp) -> bool:
    if type(op) not in (Reserve, Settle) or type(op.account) is not str:
        return False
    parts = (op.amounts, op.limits) if isinstance(op, Reserve) else (op.held, op.spent)
    return all(type(part) is dict and set(map(type, part)) <= {str} for part in parts) and all(
        type(amount) is int for part in parts for amount in part.values()
    )


class Ticket:
    """A request to commit, and later its verdict or error."""

    __slots__ = (
        "_gate",
        "error",
        "extras",
        "facts",
        "home",
        "records",
        "spills",
        "tail",
        "verdict",
        "waiting",
    )

    def __init__(self, tail: Tail, extras: Extras, home: Home | None, *, waited_for: bool) -> None:
        self.tail, self.extras, self.home = tail, extras, home
        self.records: list[chain.Whole] = []
        self.facts: list[Facts] = []
        self.spills: list[bytes] = []
        self.verdict: Verdict | None = None
        self.error: NineLivesError | None = None
        self.waiting: asyncio.Future[Verdict] | None = None
        # A lock that is released once the ticket is answered: an Event costs five times as much.
        self._gate: threading.Lock | None = None
        if waited_for:
            self._gate = threading.Lock()
            self._gate.acquire()

    def add(self, draft: Draft, at_ms: int, cipher: RecordCipher | None = None) -> None:
        """Add a record; a body that is too large for a record becomes a blob, sealed if there is a cipher.

        Raises BadRecord when the draft cannot become a record.
        """
        facts = draft[4] if len(draft) == 5 else NO_FACTS
        most = INLINE_BYTES if cipher is None else cipher.inline_bytes
        plain = _plain(draft, facts, at_ms, most)
        if plain is not None:
            self.records.append(plain)
            self.facts.append(facts)
            return
        kind, step, body = self._checked(draft)
        names: tuple[bytes, ...] = ()
        if len(draft) > 3 and draft[3]:
            contents = draft[3] if cipher is None else list(map(cipher.blob, draft[3]))
            self.spills.extend(contents)
            names = tuple(blobs.digest(content) for content in contents)
        if len(body) <= most:
            self.records.append((kind, step, at_ms, body, names, facts.kind, facts.took_ms))
            self.facts.append(facts)
        elif len(body) <= blobs.MAX_BYTES:
            body = body if cipher is None else cipher.blob(body)
            self.spills.append(body)
            # First: `large_bodies` loads the body of a record without one from its first blob.
            names = (blobs.digest(body), *names)
            self.records.append((kind, step, at_ms, b"", names, facts.kind, facts.took_ms))
            self.facts.append(facts)
        else:
            raise BadRecord(
                f"the value has {len(body)} bytes; the limit is {blobs.MAX_BYTES}",
                run=self.tail.run,
                step=step,
                remedy="Keep it in a file or an object store, and record where it is",
            )

    def _checked(self, draft: Draft) -> tuple[Kind, str, bytes]:
        shape = [type(part) for part in draft]
        if len(draft) > 3 and not all(type(part) is bytes for part in draft[3]):
            raise BadRecord(
                "the parts of a record are bytes", run=self.tail.run, remedy="Encode each part first"
            )
        if shape[:3] != [Kind, str, bytes] or shape[3:] not in _SHAPES:
            raise BadRecord(
                f"a record is (Kind, str, bytes), not ({', '.join(kind.__name__ for kind in shape)})",
                run=self.tail.run,
                remedy="Encode the value with its codec first",
            )
        kind, step, body = draft[:3]
        if not validation.is_text(step):
            raise BadRecord(
                f"the step id {step!r} is not a text that every store can keep",
                run=self.tail.run,
                remedy="Leave out NUL and lone surrogates",
            )
        return kind, step, body

    @property
    def is_answered(self) -> bool:
        """Whether there is a verdict or an error."""
        return self.verdict is not None or self.error is not None

    def answer(self, verdict: Verdict | None, error: NineLivesError | None = None) -> None:
        """Set the verdict or the error. Raises InvariantViolation the second time."""
        if self.verdict is not None or self.error is not None:
            raise InvariantViolation(f"a ticket of run {self.tail.run!r} was answered twice")
        self.verdict, self.error = verdict, error

    def fence(self) -> None:
        """Answer FENCED: the run no longer belongs to this owner."""
        self.answer(Verdict(self.tail.run, Outcome.FENCED))

    def wake(self) -> None:
        """Wake the thread that waits in `join`, if any."""
        if self._gate is not None:
            self._gate.release()

    def join(self) -> None:
        """Block until the ticket is answered."""
        if self._gate is None:
            raise InvariantViolation("this ticket was not submitted to be waited for")
        with self._gate:
            pass

    def result(self) -> Verdict:
        """Return the verdict. Raises the error with which the ticket was answered."""
        if self.error is not None:
            raise self.error
        if self.verdict is None:
            raise InvariantViolation("a ticket was read before it was answered")
        return self.verdict


def _plain(draft: Draft, facts: Facts, at_ms: int, most: int) -> chain.Whole | None:
    """Return a draft as a record if it is certainly valid and needs no blobs; None otherwise."""
    if len(draft) != 3 and (len(draft) != 5 or draft[3]):
        return None
    kind, step, body = draft[0], draft[1], draft[2]
    if type(kind) is not Kind or type(step) is not str or type(body) is not bytes:
        return None
    if not step.isprintable() or len(body) > most:  # neither NUL nor a lone surrogate is printable
        return None
    return (kind, step, at_ms, body, (), facts.kind, facts.took_ms)


def commit_of_single(
    tail: Tail, draft: Draft, at_ms: int, extras: Extras = NO_EXTRAS, most: int = INLINE_BYTES
) -> Commit | None:
    """Chain one plain record onto a run's tail; None for a draft that needs the checks of a ticket.

    Its body has at most `most` bytes.

    Raises BadRecord.
    """
    facts = draft[4] if len(draft) == 5 else NO_FACTS
    plain = _plain(draft, facts, at_ms, most)
    if plain is None or extras is NO_EXTRAS:
        return _commit_of_one(tail, plain, facts) if plain is not None else None
    extras.check(tail.run)
    ticket = Ticket(tail, extras, None, waited_for=False)
    ticket.records, ticket.facts = [plain], [facts]
    return commit_of((ticket,))


def _commit_of_one(tail: Tail, draft: chain.Whole, facts: Facts) -> Commit:
    """Return a commit of one valid record without blobs, and of nothing else."""
    length, head, epoch, kind = tail.length, tail.head, tail.epoch, draft[0]
    return Commit(
        run=tail.run,
        epoch=epoch,
        length=length,
        head=head,
        records=(chain.sealed(length, head, draft, epoch),),
        effect_length=tail.effect_length,
        is_sealed=True,
        tally=added(tail.tally, kind, draft[1], draft[3], facts),
        # `validation` and the stores skip their checks for a lone record: what needs one must not be marked.
        is_lone=kind is not Kind.TURN and kind is not Kind.OUTPUT and draft[2] < validation.INT_LIMIT,
    )


def commit_of(group: Sequence[Ticket]) -> Commit:
    """Merge tickets of one run into one commit, with their records chained onto the run's tail."""
    first = group[0]
    # The usual ticket of an event loop: one record of a run, written on the short path of each store.
    if len(group) == len(first.records) == 1 and first.extras is NO_EXTRAS and not first.spills:
        return _commit_of_one(first.tail, first.records[0], first.facts[0])
    # Only the last ticket of a group has extras: `Committer._gather` ends the group there.
    tail, extras = first.tail, group[-1].extras
    records = chain.seal(
        tail.length, tail.head, [one for ticket in group for one in ticket.records], tail.epoch
    )
    tally = tail.tally
    for ticket in group:
        for record, facts in zip(ticket.records, ticket.facts, strict=True):
            tally = added(tally, record[0], record[1], record[3], facts)
    # An effect depends on its own intent too, so salvage may not cut that off (docs/decisions/0008).
    effects = tail.length + len(records) if extras.is_effect else tail.effect_length
    return Commit(
        run=tail.run,
        epoch=tail.epoch,
        length=tail.length,
        head=tail.head,
        records=records,
        keys=extras.keys,
        opens=extras.opens,
        closes=extras.closes,
        requires=extras.requires,
        accounts=extras.accounts,
        takes=extras.takes,
        change=extras.change,
        effect_length=effects,
        is_sealed=True,
        tally=tally,
    )


def deliver(tickets: Sequence[Ticket]) -> None:
    """Wake the waiting threads, and pass the answered tickets to their homes, one call per home."""
    homes: defaultdict[Home, list[Ticket]] = defaultdict(list)
    for ticket in tickets:
        # Each ticket is answered before any is delivered: a woken thread reads its verdict without a lock.
        ticket.wake()
        if ticket.home is not None:
            homes[ticket.home].append(ticket)
    for home, arrived in homes.items():
        home.deliver(arrived)
