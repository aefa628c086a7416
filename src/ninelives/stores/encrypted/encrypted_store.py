"""A store that seals what it writes and opens what it reads. All other calls go to the store below.

The store below keeps and chains sealed bodies: verifying, copying, moving and restoring need no key. Records
are sealed by the committer (`Cipher.commit`), which knows their numbers; everything else is sealed here. If
we die in a call, the store below has all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ninelives.core.errors import IdConflict, KeyMissing, NineLivesError, UsageError
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.counter import Counter
from ninelives.core.model.document import Document
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.run import Claims, Control, Journal, NewRun, News, RunQuery, RunRow
from ninelives.stores.encrypted.bodies import Cipher
from ninelives.stores.encrypted.keys import KeyRing
from ninelives.stores.encrypted.marker import mark, read_marker

SEALED_DOCUMENTS = ("notify/", "cache/")
"""What the names of documents begin with that repeat what runs ask, answer and fail with."""


class EncryptedStore:
    """What `open_store` returns for a store that is encrypted."""

    def __init__(self, below: Any, ring: KeyRing) -> None:
        self.below = below
        self.cipher = Cipher(ring)
        self._is_marked = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)

    def require_key(self) -> None:
        """Check that this process may write to the store, and mark it as encrypted.

        The first process with keys marks the store; the first with a newer key says that it is the newest. If
        we die before that, nothing was sealed. Raises UsageError without the key that the store names.
        """
        if self._is_marked:
            return
        ring, (marker, version) = self.cipher.ring, read_marker(self.below)
        if not ring.newest or (marker is not None and marker.key not in ring.ids):
            raise UsageError(
                f"the store at {self.below.url} is encrypted with the key {marker.key if marker else '?'}, "
                "which this process does not have: nothing was written",
                remedy="Set $NINELIVES_KEYS to the store's keys, separated by commas, the newest first",
            )
        if marker is None or marker.key != ring.newest:
            mark(self.below, ring.newest, version)
        self._is_marked = True

    # Runs ---------------------------------------------------------------------------------------

    def create_runs(self, new: Sequence[NewRun], *, session: str | None = None) -> list[Any]:
        """Create runs with sealed arguments."""
        self.require_key()
        made = self.below.create_runs([self.cipher.new_run(one) for one in new], session=session)
        return [self.cipher.open_run(one) if isinstance(one, RunRow) else one for one in made]

    def read_run(self, run: str) -> RunRow | None:
        """Return a run's row, opened."""
        row = self.below.read_run(run)
        return None if row is None else self.cipher.open_run(row)

    def list_runs(self, query: RunQuery) -> list[RunRow]:
        """Return rows of runs, opened."""
        return [self.cipher.open_run(row) for row in self.below.list_runs(query)]

    def claim_runs(self, *args: Any, **kwargs: Any) -> Claims:
        """Claim runs."""
        claims: Claims = self.below.claim_runs(*args, **kwargs)
        return replace(claims, runs=tuple(map(self.cipher.open_run, claims.runs))) if claims.runs else claims

    def control_run(self, run: str, control: Control) -> RunRow:
        """Control a run."""
        return self.cipher.open_run(self.below.control_run(run, control))

    def salvage(self, run: str, epoch: int) -> RunRow:
        """Cut a damaged journal."""
        return self.cipher.open_run(self.below.salvage(run, epoch))

    # Journals -----------------------------------------------------------------------------------

    def load_journal(self, run: str, *, since: int | None = None) -> Journal:
        """Return the durable part of a run, opened. Raises KeyMissing."""
        return self.cipher.open_journal(self.below.load_journal(run, since=since))

    def load_journals(self, runs: Sequence[str]) -> list[Journal | NineLivesError]:
        """Return journals, opened; for one without its key, the error."""
        return [self._opened(one) for one in self.below.load_journals(runs)]

    def _opened(self, found: Journal | NineLivesError) -> Journal | NineLivesError:
        try:
            return self.cipher.open_journal(found) if isinstance(found, Journal) else found
        except KeyMissing as error:
            return error

    def read_news(self, seen: Mapping[str, int]) -> list[News]:
        """Return news, opened; leave out runs without their key: the owner gets the error when it reads."""
        found = []
        for one in self.below.read_news(seen):
            try:
                found.append(
                    replace(
                        one,
                        run=self.cipher.open_run(one.run),
                        signals=tuple(map(self.cipher.open_signal, one.signals)),
                        items=tuple(map(self.cipher.open_item, one.items)),
                    )
                )
            except KeyMissing:
                continue
        return found

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Commit what the committer has sealed."""
        return [
            verdict if verdict.key is None else replace(verdict, key=self.cipher.open_key(verdict.key))
            for verdict in self.below.commit(batch)
        ]

    def read_keys(self, keys: Sequence[str]) -> dict[str, Key]:
        """Return rows of business keys, opened."""
        return {name: self.cipher.open_key(key) for name, key in self.below.read_keys(keys).items()}

    # From outside -------------------------------------------------------------------------------

    def send_signal(self, run: str, name: str, body: bytes, *, id: str | None = None) -> Signal:
        """Send a sealed signal."""
        self.require_key()
        try:
            sent = self.below.send_signal(run, name, self.cipher.signal(run, name, id or "", body), id=id)
        except IdConflict:
            # The same signal may have been sealed with an older key.
            for key in self.cipher.ring.ids[1:]:
                older = self.cipher.with_key(key).signal(run, name, id or "", body)
                try:
                    return self.cipher.open_signal(self.below.send_signal(run, name, older, id=id))
                except IdConflict:
                    continue
            raise
        return self.cipher.open_signal(sent)

    def list_inbox(self, **options: Any) -> list[Item]:
        """Return inbox items, opened."""
        return [self.cipher.open_item(item) for item in self.below.list_inbox(**options)]

    def answer_item(self, item: str, *, digest: bytes, body: bytes, by: str) -> Item:
        """Answer an item, sealed."""
        self.require_key()
        answer = self.cipher.answer(item, body)
        return self.cipher.open_item(self.below.answer_item(item, digest=digest, body=answer, by=by))

    # Blobs and documents ------------------------------------------------------------------------

    def put_blobs(self, contents: Iterable[bytes]) -> list[bytes]:
        """Store contents, sealed; return the digests of what is stored."""
        self.require_key()
        found: list[bytes] = self.below.put_blobs(map(self.cipher.blob, contents))
        return found

    def get_blobs(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return contents, opened. Raises KeyMissing."""
        return {name: self.cipher.open_blob(held) for name, held in self.below.get_blobs(digests).items()}

    def read_documents(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[Document]:
        """Return documents, opened. Raises KeyMissing."""
        return [self._document(one) for one in self.below.read_documents(prefix, after=after, limit=limit)]

    def _document(self, found: Document) -> Document:
        return replace(found, body=self.cipher.open_document(found.name, found.body))

    def write_document(
        self, name: str, body: bytes | None, *, version: int, counts: Sequence[Counter] = ()
    ) -> Document | None:
        """Write a document, sealed if it repeats what runs ask, answer or fail with."""
        if body is not None and name.startswith(SEALED_DOCUMENTS):
            self.require_key()
            body = self.cipher.document(name, body)
        written = self.below.write_document(name, body, version=version, counts=counts)
        return None if written is None else self._document(written)

    def name_secret(self) -> bytes:
        """Return what digests in names are keyed with: then a name says nothing of what is sealed under it.

        Another newest key gives other names.
        """
        return self.cipher.ring.derived("names")


def with_encryption(below: Any, ring: KeyRing | None) -> Any:
    """Return the store that seals and opens, if keys are given or the store says that it is encrypted.

    With keys of another store, or without any, it can look at what it can open, and writes nothing.
    """
    if ring is not None:
        return EncryptedStore(below, ring)
    return below if read_marker(below)[0] is None else EncryptedStore(below, KeyRing([]))
