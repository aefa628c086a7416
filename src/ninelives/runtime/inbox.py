"""The inbox: what waits for a person, and the verbs that answer it.

An answer is checked where it is given, counts once, and is bound to the digest of what was shown. If we die
while giving it, it counts or was never given, and giving it again is safe. Nobody needs to work on the run
meanwhile: the answer waits for it.
"""

from __future__ import annotations

import getpass
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw

from ninelives.core.errors import NotSerializable, StaleAnswer
from ninelives.core.journal.answers import (
    Answer,
    Asked,
    Says,
    check_answer,
    fitting,
    read_answer,
    read_asked,
    write_answer,
)
from ninelives.core.model.inbox import Item, ItemKind, ItemState
from ninelives.core.values.codec import codec_for
from ninelives.store import Store

if TYPE_CHECKING:
    from ninelives.runtime.runtime import Runtime

_MOST_ITEMS = 10_000


class InboxItem:
    """One thing that waits, or waited, for a person."""

    def __init__(self, runtime: Runtime, item: Item) -> None:
        self._runtime, self._item = runtime, item

    def __repr__(self) -> str:
        return f"<inbox item {self.id!r}: {self.kind} of run {self.run!r}>"

    @property
    def id(self) -> str:
        """Name the item."""
        return self._item.id

    @property
    def run(self) -> str:
        """Name the run that waits."""
        return self._item.run

    @property
    def kind(self) -> ItemKind:
        """Say why a person is asked."""
        return self._item.kind

    @property
    def step(self) -> str:
        """Name the step, as the journal does; empty when it is about the run as a whole."""
        return self._item.step

    @property
    def to(self) -> str:
        """Say who is asked; empty: anybody."""
        return self._item.to

    @property
    def state(self) -> ItemState:
        """Say whether it waited when it was listed."""
        return self._item.state

    @property
    def opened(self) -> datetime:
        """Say since when it has waited."""
        return _moment(self._item.opened_ms)

    @property
    def deadline(self) -> datetime | None:
        """Say when its default holds, if nobody answers."""
        return None if self._item.deadline_ms is None else _moment(self._item.deadline_ms)

    @property
    def asked(self) -> Asked:
        """What is asked: in words, with arguments, key, options, and the evidence."""
        return read_asked(self._item)

    @property
    def takes(self) -> tuple[Says, ...]:
        """What may be answered to it."""
        return fitting(self._item.kind, happened=self.asked.happened)

    @property
    def answered(self) -> Answer | None:
        """What was answered, if it was."""
        return read_answer(self._item) if self._item.state is ItemState.ANSWERED else None

    @property
    def by(self) -> str:
        """Say who answered."""
        return self._item.by

    async def approve(self, *, by: str | None = None, note: str = "") -> None:
        """Say yes to exactly what the item shows. Raises StaleAnswer, UsageError, as all verbs do."""
        await self._give(Answer(Says.APPROVED, note=note), by)

    async def deny(self, *, by: str | None = None, note: str = "") -> None:
        """Say no: the action is not carried out, and the agent learns why."""
        await self._give(Answer(Says.DENIED, note=note), by)

    async def answer(self, value: Any, *, by: str | None = None, note: str = "") -> None:
        """Answer a question; the value is checked against what was asked for."""
        await self._give(Answer(Says.VALUE, encoded(value), note), by)

    async def settle(
        self, *, happened: bool, result: Any = UNSET, by: str | None = None, note: str = ""
    ) -> None:
        """Say what became of an action in doubt: it happened, with this result, or it did not and cannot."""
        if not happened and result is not UNSET:
            raise NotSerializable("what did not happen has no result", run=self.run, remedy="Leave it out")
        value = encoded(result) if result is not UNSET else UNSET
        await self._give(Answer(Says.HAPPENED if happened else Says.NOT_HAPPENED, value, note), by)

    async def retry(self, *, by: str | None = None, note: str = "") -> None:
        """Let the run go on: what stood in its way is mended."""
        await self._give(Answer(Says.RETRY, note=note), by)

    async def fail(self, *, by: str | None = None, note: str = "") -> None:
        """Give the run up: it ends failed, with the evidence."""
        await self._give(Answer(Says.FAIL, note=note), by)

    async def _give(self, answer: Answer, by: str | None) -> None:
        self._item = await self._runtime.call(give, self._item, answer, by)


def give(store: Store, item: Item, answer: Answer, by: str | None = None) -> Item:
    """Answer an item in somebody's name; without one, in that of who is logged in.

    Raises UsageError when it is no answer to it; StaleAnswer when it does not wait for one any more.
    """
    check_answer(item, answer)
    return store.answer_item(item.id, digest=item.digest, body=write_answer(answer), by=by or login())


def find(store: Store, name: str) -> Item:
    """Return an item by its id, or the only open one of the run of that id; if none is, its last one.

    So an answer may be given again. Raises StaleAnswer when there is none, or several are open.
    """
    found = store.list_inbox(item=name, answered=True) or store.list_inbox(run=name)
    found = found or store.list_inbox(run=name, answered=True, limit=_MOST_ITEMS)[-1:]
    if len(found) == 1:
        return found[0]
    if not found and store.read_run(name) is not None:
        raise StaleAnswer(
            f"run {name!r} asks nobody anything", run=name, remedy="ninelives show says where it is"
        )
    if not found:
        raise StaleAnswer(f"there is no inbox item {name!r}", remedy="ninelives inbox lists those that wait")
    names = ", ".join(item.id for item in found)
    raise StaleAnswer(f"run {name!r} has several open inbox items", run=name, remedy=f"Name one of {names}")


def encoded(value: Any) -> Raw:
    """Encode a value as the codec of its own type does. Raises NotSerializable, UsageError."""
    return Raw(codec_for(type(value)).encode(value))


def from_json(text: str, what: str) -> Raw:
    """Take a value that is JSON, or else plain words. Raises NotSerializable for what is meant as JSON."""
    try:
        data = text.encode()
        msgspec.json.decode(data)
    except UnicodeEncodeError:
        raise NotSerializable(f"{what} is not UTF-8", remedy="Give it as JSON, with \\u escapes") from None
    except (msgspec.DecodeError, RecursionError) as error:
        if text[:1] in ("{", "[", '"'):
            raise NotSerializable(
                f"{what} is no JSON: {error}", remedy="Quote it for the shell: '...'"
            ) from None
        return Raw(msgspec.json.encode(text))
    return Raw(data)


def login() -> str:
    """Return the name of who is logged in, for the record."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return f"uid {os.getuid()}"


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
