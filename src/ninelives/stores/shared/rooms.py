"""What a store's modules offer to `CheckedStore`: functions of a transaction, with checked values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from ninelives.core.errors import NineLivesError
from ninelives.core.model.inbox import Item
from ninelives.core.model.key import Key
from ninelives.core.model.log_entry import LogEntry, NewEntry
from ninelives.core.model.run import Journal, News, RunQuery, RunRow
from ninelives.core.model.session import Cause, Evidence, NewSession, Session

Tx_contra = TypeVar("Tx_contra", contravariant=True)


Ending = tuple[Cause, Evidence | None]


class KeepsSessions(Protocol):
    """The sessions of one store, as one process sees them."""

    def register(self, new: NewSession) -> Session: ...
    def renew(self, session: str) -> Session: ...
    def end(self, given: Mapping[str, Ending] | None) -> list[Session]: ...
    def find(self, session: str) -> Session | None: ...
    def live(self) -> list[Session]: ...


class ReadsJournals(Protocol[Tx_contra]):
    """Reading journals. `read_journals` may raise Corrupt: they are then read one by one."""

    def read_journal(self, tx: Tx_contra, run_id: str, since: int | None) -> Journal: ...
    def read_journals(self, tx: Tx_contra, names: Sequence[str]) -> Sequence[Journal | NineLivesError]: ...
    def read_news(self, tx: Tx_contra, seen: Mapping[str, int]) -> list[News]: ...


class KeepsLog(Protocol[Tx_contra]):
    """The recovery log."""

    def append(self, tx: Tx_contra, new: Sequence[NewEntry]) -> None: ...
    def read(self, tx: Tx_contra, run: str | None, below: int, limit: int) -> list[LogEntry]: ...


class FindsRows(Protocol[Tx_contra]):
    """Runs, keys, inbox items and blobs, by name. Each reads with one statement.

    `put_blobs` gets all contents, and packed those that were not known just before.
    """

    def find_runs(self, tx: Tx_contra, names: Sequence[str]) -> Mapping[str, RunRow]: ...
    def list_runs(self, tx: Tx_contra, query: RunQuery) -> list[RunRow]: ...
    def read_keys(self, tx: Tx_contra, keys: Sequence[str]) -> Mapping[str, Key]: ...
    def list_items(
        self, tx: Tx_contra, run: str | None, item: str | None, limit: int, *, answered: bool
    ) -> Sequence[Item]: ...
    def known_blobs(self, tx: Tx_contra, digests: Sequence[bytes]) -> Collection[bytes]: ...
    def read_blobs(self, tx: Tx_contra, digests: Sequence[bytes]) -> Mapping[bytes, bytes]: ...
    def put_blobs(
        self, tx: Tx_contra, contents: Mapping[bytes, bytes], packed: Mapping[bytes, bytes]
    ) -> None: ...
