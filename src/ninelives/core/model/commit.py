"""What a run writes in one transaction, and what the store answers."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from ninelives.core.errors import NineLivesError
from ninelives.core.model.inbox import NewItem
from ninelives.core.model.key import Key, KeyOp
from ninelives.core.model.run import Kind, Record, State
from ninelives.core.model.totals import Tally


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
    `tally` is what the row sums up of the journal after it; None leaves that as it is.
    `is_lone`: nothing but one sealed, sound record without blobs, which neither ends a turn nor is output.
    `is_sealed`: who made this has sealed the records just now, so no store must take their hashes again.
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
    is_sealed: bool = False
    tally: Tally | None = None
    is_lone: bool = False

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
        return self.is_lone or (self.change is None and self._only_appends())

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
