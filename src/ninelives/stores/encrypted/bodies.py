"""Which parts of each body are sealed, and where each belongs.

What a store itself has to read stays readable: which item an answer takes, which signal was received, the
start of a protected action without its arguments. So a store verifies, restores and moves runs without keys.
Everything else of a body is sealed as a whole, and comes back byte for byte.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ninelives.core.errors import KeyMissing
from ninelives.core.journal import chain
from ninelives.core.journal.replay import SIGNAL_NUMBER
from ninelives.core.model.commit import Commit, Escalate, Park
from ninelives.core.model.inbox import Item, NewItem, Signal
from ninelives.core.model.key import Key, SettleKey
from ninelives.core.model.run import INLINE_BYTES, Journal, Kind, NewRun, Record, RunRow
from ninelives.core.model.totals import Tally
from ninelives.stores.encrypted.keys import KeyRing
from ninelives.stores.encrypted.sealing import MARK, TEXT, UNREADABLE, as_object, opened, sealed, token_in

SEALED_INLINE: Final = INLINE_BYTES * 3 // 4 - 1024
"""The largest body that, sealed, still fits into a record."""
_START: Final = frozenset(["n", "w", "l", "b", "k", "t", "over", "lost", "i", "g", "boot", "boot_ms", "sid"])
_PLAIN_PARTS: Final = {
    Kind.INTENT: _START,
    Kind.DOUBT: _START,
    Kind.VOIDED: _START,
    Kind.ASKED: frozenset({"item", "kind", "is_open"}),
}
_READABLE: Final = frozenset({Kind.SUPERSEDED, Kind.RELEASED, Kind.SALVAGED})
"""Bodies that only name steps and records of the run itself."""
_STEPS: Final = frozenset({Kind.RESULT, Kind.WITHDRAWN, Kind.SIGNAL, *_PLAIN_PARTS})
_ENCODE, _DECODE = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
_TEXTS: Final = ("waits", "progress", "last_error", "retrying")


class Cipher:
    """Seals what is written to one store, and opens what is read from it."""

    inline_bytes = SEALED_INLINE

    def __init__(self, ring: KeyRing) -> None:
        self.ring = ring

    def with_key(self, key: str) -> Cipher:
        """Return a cipher that seals with another key of this process."""
        return Cipher(self.ring.beginning_with(key))

    # Records ------------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> Commit:
        """Return a commit with everything of users sealed, and its records chained again."""
        run, head, records = commit.run, commit.head, []
        for record in commit.records:
            body = self._body(run, record)
            drafted = chain.draft_of(record if body is record.body else replace(record, body=body))
            records.append(chain.sealed(record.seq, head, drafted, record.epoch or 0))
            head = records[-1].check
        change = commit.change
        if isinstance(change, Park | Escalate):
            change = replace(change, waits=self._text(run, "waits", change.waits))
        return replace(
            commit,
            records=tuple(records),
            change=change,
            keys=tuple(
                replace(op, body=self._shared(op.key, op.body)) if isinstance(op, SettleKey) else op
                for op in commit.keys
            ),
            opens=tuple(self._item(run, item) for item in commit.opens),
            tally=self._tally(run, commit.tally) if commit.tally is not None else None,
        )

    def new_run(self, new: NewRun) -> NewRun:
        """Return a new run with its arguments, and the records that it starts with, sealed."""
        first = self._body(new.id, Record(0, Kind.CREATED, "", 0, new.body))
        prefix = [
            replace(record, body=self._body(new.id, replace(record, seq=seq)))
            for seq, record in enumerate(new.prefix, 1)
        ]
        return replace(new, body=first, prefix=tuple(prefix))

    def _body(self, run: str, record: Record) -> bytes:
        kind, body = record.kind, record.body
        if not body or kind in _READABLE or (MARK in body and _slot(kind, _DECODE(body)) is not None):
            return body
        of: list[object] = [record.seq, kind.value]
        token = as_object(sealed(self.ring, run, _context(of, record.step), body), of)
        if kind is Kind.ANSWER:
            tree = _DECODE(body)
            return _ENCODE(tree | {"answer": {"says": tree["answer"]["says"], "value": token}})
        if kind is Kind.FAILURE:
            return _ENCODE({"e": token})
        if kind not in _STEPS:
            return _ENCODE(token)
        tree = _DECODE(body)
        kept = {name: held for name, held in tree.items() if name in _PLAIN_PARTS.get(kind, ())}
        if (number := tree.get("a", {}).get(SIGNAL_NUMBER)) is not None:
            kept["a"] = {SIGNAL_NUMBER: number}
        return _ENCODE(kept | {"v": token})

    def open_record(self, run: str, record: Record) -> Record:
        """Return a record as it was before it was sealed. Raises KeyMissing."""
        if MARK not in record.body:
            return record
        tree = _DECODE(record.body)
        found = _slot(record.kind, tree)
        if found is None:
            return record
        token, of = found
        what = f"record {record.seq}"
        # The record of a doubt that a restore or an import wrote repeats the start that it is about.
        is_own = of == [record.seq, record.kind.value]
        if not is_own and not (record.kind is Kind.DOUBT and len(of) == 2 and of[0] < record.seq):
            raise KeyMissing(
                f"{what} has the content of another record", run=run, remedy="Restore the store from a backup"
            )
        plain = opened(self.ring, run, _context(of, record.step), token, run=run, what=what)
        if not is_own:
            tree.pop("v", None)
            plain = _ENCODE(_DECODE(plain) | tree)
        return replace(record, body=plain)

    def open_journal(self, journal: Journal) -> Journal:
        """Return a journal with everything opened. Raises KeyMissing."""
        run = journal.run.id
        return replace(
            journal,
            run=self.open_run(journal.run),
            records=tuple(self.open_record(run, record) for record in journal.records),
            signals=tuple(map(self.open_signal, journal.signals)),
            items=tuple(map(self.open_item, journal.items)),
        )

    # Rows ---------------------------------------------------------------------------------------

    def _text(self, run: str, name: str, text: str) -> str:
        if not text or text.startswith((TEXT, f'"{TEXT}')):
            return text
        token = f"{TEXT}{sealed(self.ring, run, name, text.encode())}"
        # These two have to be JSON.
        return f'"{token}"' if name in ("progress", "retrying") else token

    def _tally(self, run: str, tally: Tally) -> Tally:
        return replace(
            tally, **{name: self._text(run, name, getattr(tally, name)) for name in _TEXTS if name != "waits"}
        )

    def open_run(self, row: RunRow) -> RunRow:
        """Return a run's row with its texts opened; without the key, they say that they are encrypted."""
        found = {}
        for name in _TEXTS:
            text = getattr(row, name).strip('"')
            if text.startswith(TEXT):
                found[name] = self._open_text(row.id, name, text[len(TEXT) :])
        return replace(row, **found) if found else row

    def _open_text(self, run: str, name: str, token: str) -> str:
        try:
            return opened(self.ring, run, name, token, run=run, what=f"its {name}").decode()
        except KeyMissing:
            return "" if name in ("progress", "retrying") else UNREADABLE

    # What comes from outside --------------------------------------------------------------------

    def _item(self, run: str, item: NewItem) -> NewItem:
        if MARK in item.body:
            return item
        token = as_object(sealed(self.ring, run, f"item {item.id}", item.body))
        return replace(item, body=_ENCODE({"what": UNREADABLE, **token}))

    def open_item(self, item: Item) -> Item:
        """Return an inbox item with question and answer opened; without the key, it says so."""
        body, answer = item.body, item.answer
        if (found := _found(body)) is not None:
            body = self._item_body(item, found)
        if answer and MARK in answer and (held := token_in(_DECODE(answer).get("value"))) is not None:
            what = f"the answer to {item.id}"
            answer = opened(self.ring, "", f"answer {item.id}", held[0], run=item.run, what=what)
        return (
            item if body is item.body and answer is item.answer else replace(item, body=body, answer=answer)
        )

    def _item_body(self, item: Item, token: str) -> bytes:
        try:
            return opened(self.ring, item.run, f"item {item.id}", token, run=item.run, what="its question")
        except KeyMissing as error:
            return _ENCODE({"what": f"{UNREADABLE}: {error.what}", "remedy": error.remedy or ""})

    def answer(self, item: str, body: bytes) -> bytes:
        """Return an answer to an item, sealed but for what it says (yes, no, retry)."""
        token = as_object(sealed(self.ring, "", f"answer {item}", body))
        return _ENCODE({"says": _DECODE(body)["says"], "value": token})

    def signal(self, run: str, name: str, id: str, body: bytes) -> bytes:
        """Return the value of a signal, sealed."""
        return _ENCODE(as_object(sealed(self.ring, run, f"signal {name} {id}", body)))

    def open_signal(self, signal: Signal) -> Signal:
        """Return a signal as it was sent. Raises KeyMissing."""
        token = _found(signal.body)
        if token is None:
            return signal
        context = f"signal {signal.name} {signal.id}"
        what = f"the signal {signal.name!r}"
        return replace(signal, body=opened(self.ring, signal.run, context, token, run=signal.run, what=what))

    def _shared(self, key: str, body: bytes) -> bytes:
        if not body or MARK in body:
            return body
        return _ENCODE(as_object(sealed(self.ring, "", f"key {key}", body)))

    def open_key(self, key: Key) -> Key:
        """Return the row of a business key with its result. Raises KeyMissing."""
        token = _found(key.body)
        if token is None:
            return key
        what = f"the result under the key {key.key!r}"
        return replace(key, body=opened(self.ring, "", f"key {key.key}", token, run=key.run, what=what))

    # Blobs and documents ------------------------------------------------------------------------

    def blob(self, content: bytes) -> bytes:
        """Return a large value, sealed: equal ones stay equal, and are kept once."""
        if _found(content) is not None:
            return content
        return _ENCODE(as_object(sealed(self.ring, "", "blob", content)))

    def open_blob(self, content: bytes) -> bytes:
        """Return a large value as it was. Raises KeyMissing."""
        token = _found(content)
        if token is None:
            return content
        return opened(self.ring, "", "blob", token, run=None, what="a large value")

    def document(self, name: str, body: bytes) -> bytes:
        """Return a document's body, sealed."""
        return _ENCODE(as_object(sealed(self.ring, "", f"document {name}", body)))

    def open_document(self, name: str, body: bytes) -> bytes:
        """Return a document's body as it was. Raises KeyMissing."""
        token = _found(body)
        if token is None:
            return body
        return opened(self.ring, "", f"document {name}", token, run=None, what=f"the document {name!r}")


def _context(of: list[Any], step: str) -> str:
    return f"record {of[0]} {of[1]} {step}"


def _slot(kind: Kind, tree: Any) -> tuple[str, list[Any]] | None:
    """Return the token of a record's body, and of which record it is; None if the body is not sealed."""
    if type(tree) is not dict:
        return None
    if kind is Kind.ANSWER:
        answer = tree.get("answer")
        return token_in(answer.get("value")) if type(answer) is dict else None
    if kind is Kind.FAILURE:
        return token_in(tree.get("e"))
    return token_in(tree.get("v")) if kind in _STEPS else token_in(tree)


def _found(body: bytes) -> str | None:
    """Return the token of a body that is sealed as a whole."""
    if MARK not in body:
        return None
    found = token_in(_DECODE(body))
    return found[0] if found is not None else None
