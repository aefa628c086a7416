"""The inbox: items that wait for a person, and the verbs that answer them.

An answer is checked where it is given, counts once, and is bound to the digest of what the item showed.
Giving it is atomic: if we die meanwhile, it counts or it was never given, and giving it again is safe. No
worker needs to hold the run: the answer is stored until one does.
"""

from __future__ import annotations

import getpass
import os
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from ninelives.core.clock import moment
from ninelives.core.errors import NotSerializable, StaleAnswer
from ninelives.core.journal.answers import (
    Answer,
    ItemBody,
    Says,
    check_answer,
    fitting,
    read_answer,
    read_item_body,
    write_answer,
)
from ninelives.core.model.inbox import Item, ItemKind, ItemState
from ninelives.core.values.codec import codec_for
from ninelives.core.values.json_schema import as_secret, asks_secret
from ninelives.engine.commit.sealing import writing_to
from ninelives.runtime.store_calls import StoreCalls
from ninelives.store import Store

_MOST_ITEMS = 10_000


class InboxItem:
    """A request that waits, or waited, for a person's answer."""

    def __init__(self, runtime: StoreCalls, item: Item, person: str | None = None) -> None:
        self._runtime, self._item, self._person = runtime, item, person

    def seen_by(self, person: str, runtime: StoreCalls) -> InboxItem:
        """Return the item as it was shown here, to be answered by that person through a runtime."""
        return InboxItem(runtime, self._item, person)

    def __repr__(self) -> str:
        return f"<inbox item {self.id!r}: {self.kind} of run {self.run!r}>"

    @property
    def id(self) -> str:
        """The item's id."""
        return self._item.id

    @property
    def run(self) -> str:
        """The id of the run that waits."""
        return self._item.run

    @property
    def kind(self) -> ItemKind:
        """Why a person is asked."""
        return self._item.kind

    @property
    def step(self) -> str:
        """Name the step, as the journal does; empty when it is about the run as a whole."""
        return self._item.step

    @property
    def to(self) -> str:
        """The name of the person to ask; empty: any person."""
        return self._item.to

    @property
    def state(self) -> ItemState:
        """Say whether it waited when it was listed."""
        return self._item.state

    @property
    def opened(self) -> datetime:
        """When the item was opened."""
        return moment(self._item.opened_ms)

    @property
    def deadline(self) -> datetime | None:
        """When its default becomes the answer, if no person has answered."""
        return None if self._item.deadline_ms is None else moment(self._item.deadline_ms)

    @property
    def asked(self) -> ItemBody:
        """The request: its text, arguments, key, options, and the evidence."""
        return read_item_body(self._item)

    @property
    def takes(self) -> tuple[Says, ...]:
        """The kinds of answer that the item accepts."""
        return fitting(self._item.kind, happened=self.asked.happened)

    @property
    def answered(self) -> Answer | None:
        """The answer; None until there is one."""
        return read_answer(self._item) if self._item.state is ItemState.ANSWERED else None

    @property
    def by(self) -> str:
        """The name under which a person answered."""
        return self._item.by

    async def approve(self, *, by: str | None = None, note: str = "") -> None:
        """Approve exactly what the item shows. Raises StaleAnswer, UsageError, as every verb here does."""
        await self._give(Answer(Says.APPROVED, note=note), by)

    async def deny(self, *, by: str | None = None, note: str = "") -> None:
        """Deny it: the action is not executed, and the agent gets `nl.Denied` with the note."""
        await self._give(Answer(Says.DENIED, note=note), by)

    async def answer(self, value: Any, *, by: str | None = None, note: str = "") -> None:
        """Answer a question; the value is checked against the question's type and options."""
        with writing_to(self._runtime.store):
            given = encoded(value)
        await self._give(Answer(Says.VALUE, given, note), by)

    async def settle(
        self, *, happened: bool, result: Any = UNSET, by: str | None = None, note: str = ""
    ) -> None:
        """Settle an action in doubt: it happened, with this result, or it did not and no longer can."""
        if not happened and result is not UNSET:
            raise NotSerializable(
                "an action that did not happen has no result", run=self.run, remedy="Leave out the result"
            )
        with writing_to(self._runtime.store):
            value = encoded(result) if result is not UNSET else UNSET
        await self._give(Answer(Says.HAPPENED if happened else Says.NOT_HAPPENED, value, note), by)

    async def retry(self, *, by: str | None = None, note: str = "") -> None:
        """Let the run continue: the cause of its escalation is fixed."""
        await self._give(Answer(Says.RETRY, note=note), by)

    async def fail(self, *, by: str | None = None, note: str = "") -> None:
        """End the run as failed, with the evidence."""
        await self._give(Answer(Says.FAIL, note=note), by)

    async def _give(self, answer: Answer, by: str | None) -> None:
        self._item = await self._runtime.call(give, self._item, answer, by or self._person)


def give(store: Store, item: Item, answer: Answer, by: str | None = None) -> Item:
    """Answer an item in the name of `by`; default: the login name.

    Raises UsageError when the item does not accept that answer; StaleAnswer when it no longer waits for one.
    """
    if answer.value is not UNSET and asks_secret(schema := read_item_body(item).schema):
        given = as_secret(schema, msgspec.json.decode(answer.value))
        answer = replace(answer, value=Raw(msgspec.json.encode(given)))
    check_answer(item, answer)
    return store.answer_item(item.id, digest=item.digest, body=write_answer(answer), by=by or login())


def find(store: Store, name: str) -> Item:
    """Return the item of that id, or the only open item of the run of that id; if none is open, its last.

    The last item allows an answer to be given again. Raises StaleAnswer for no item, or several open ones.
    """
    found = store.list_inbox(item=name, answered=True) or store.list_inbox(run=name)
    found = found or store.list_inbox(run=name, answered=True, limit=_MOST_ITEMS)[-1:]
    if len(found) == 1:
        return found[0]
    if not found and store.read_run(name) is not None:
        raise StaleAnswer(
            f"run {name!r} has no inbox items", run=name, remedy="ninelives show prints where it is"
        )
    if not found:
        raise StaleAnswer(f"there is no inbox item {name!r}", remedy="ninelives inbox lists the open items")
    names = ", ".join(item.id for item in found)
    raise StaleAnswer(f"run {name!r} has several open inbox items", run=name, remedy=f"Name one of {names}")


def encoded(value: Any) -> Raw:
    """Encode a value with the codec of its type. Raises NotSerializable, UsageError."""
    return Raw(codec_for(type(value)).encode(value))


def from_json(text: str, what: str) -> Raw:
    """Return the text as JSON: itself if it is valid JSON, else as a string.

    Raises NotSerializable when it starts like an object, array or string and is not valid.
    """
    try:
        data = text.encode()
        msgspec.json.decode(data)
    except UnicodeEncodeError:
        raise NotSerializable(f"{what} is not UTF-8", remedy="Give it as JSON, with \\u escapes") from None
    except (msgspec.DecodeError, RecursionError) as error:
        if text[:1] in ("{", "[", '"'):
            raise NotSerializable(
                f"{what} is not valid JSON: {error}", remedy="Quote it for the shell: '...'"
            ) from None
        return Raw(msgspec.json.encode(text))
    return Raw(data)


def login() -> str:
    """Return the login name, to store with an answer."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return f"uid {os.getuid()}"
