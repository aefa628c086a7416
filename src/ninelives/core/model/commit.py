"""What a run writes in one transaction, and what the store answers."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from ninelives.core.errors import NineLivesError
from ninelives.core.governance.accounts import AccountOp, Over, Requirement
from ninelives.core.model.inbox import NewItem
from ninelives.core.model.key import Key, KeyOp
from ninelives.core.model.run import Kind, Record, State
from ninelives.core.model.totals import Tally


class Park(Struct, frozen=True, tag="park"):
    """Leave the worker. If there is news that the owner has not seen, the run is due at once.

    `waits` completes the sentence "it waits ...": "for the signal 'paid'", "until 2027-01-01".
    """

    due_ms: int | None
    waits: str
    news_seen: int


class End(Struct, frozen=True, tag="end"):
    """End the run."""

    state: Literal[State.COMPLETED, State.FAILED, State.CANCELLED]


class Escalate(Struct, frozen=True, tag="escalate"):
    """Leave the worker until a person answers. As with `Park`, unseen news makes the run due at once."""

    waits: str
    news_seen: int


Change = Park | End | Escalate


class Commit(Struct, frozen=True, kw_only=True):
    """All that one run writes in one transaction; applied whole or not at all.

    `length` and `head` are the run's before this commit; `records` continue from there, sealed.
    `effect_length` counts the run's records that some visible effect depends on, begun effects included.
    `tally` holds the row's totals after this commit; None leaves them as they are.
    `requires` are documents that must be at a version, `accounts` what is reserved and spent.
    `is_lone`: nothing but one sealed, valid record without blobs, which neither ends a turn nor is output.
    `is_sealed`: the caller has just sealed the records, so stores need not compute their hashes again.
    """

    run: str
    epoch: int
    length: int
    head: bytes
    records: tuple[Record, ...] = ()
    keys: tuple[KeyOp, ...] = ()
    opens: tuple[NewItem, ...] = ()
    closes: tuple[str, ...] = ()
    requires: tuple[Requirement, ...] = ()
    accounts: tuple[AccountOp, ...] = ()
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
        """Whether this only appends records of the current turn."""
        return self.is_lone or (self.change is None and not self.requires and self._only_appends())

    @property
    def is_plain_if(self) -> bool:
        """Whether this only appends records of the current turn, on the condition of what it requires."""
        return bool(self.requires) and self.change is None and self._only_appends()

    @property
    def is_plain_end(self) -> bool:
        """Whether this only appends records of the current turn, and completes the run."""
        change = self.change
        is_end = isinstance(change, End) and change.state is State.COMPLETED
        return is_end and not self.requires and self._only_appends()

    @property
    def changes_one_key(self) -> bool:
        """Whether this only appends records of the current turn, and changes or awaits one key."""
        is_one = len(self.keys) == 1 and self.change is None and bool(self.records)
        return is_one and not self.requires and self._only_appends(has_keys=True)

    @property
    def only_charges(self) -> bool:
        """Whether this only appends records of the current turn, and reserves or settles in accounts."""
        is_charging = bool(self.accounts) and self.change is None and bool(self.records)
        return is_charging and not self.requires and self._only_appends(has_accounts=True)

    def _only_appends(self, *, has_keys: bool = False, has_accounts: bool = False) -> bool:
        if self.opens or self.closes or self.takes:
            return False
        if (self.keys and not has_keys) or (self.accounts and not has_accounts):
            return False
        for record in self.records:  # noqa: SIM110 (hot path: a generator would double the cost)
            if record.kind is Kind.TURN:
                return False
        return True


class Outcome(StrEnum):
    """How a commit came out for one run."""

    COMMITTED = "committed"
    FENCED = "fenced"  # this owner has lost the run; nothing was written to it
    HELD = "held"  # a key is held or settled by another run; `Verdict.key` says how
    OVER = "over"  # a limit would be passed; `Verdict.account` says which
    CHANGED = "changed"  # a document is not at the version that is required
    STALE = "stale"  # a signal was taken or an item answered in the meantime: read the run again
    REFUSED = "refused"  # the content is wrong; `Verdict.error` says why


class Verdict(Struct, frozen=True):
    """A store's answer for one run of a batch."""

    run: str
    outcome: Outcome
    error: NineLivesError | None = None
    key: Key | None = None
    account: Over | None = None
