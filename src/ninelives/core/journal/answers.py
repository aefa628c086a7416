"""Requests to people and their answers: the bodies of inbox items and of their records.

`ItemBody` is the body of an item: shown to people, and enough to validate an answer where the agent's code is
not loaded. `Answer` is the reply. One table, `FITTING`, says which answers fit which kind of item; any other
answer is refused before anything is written.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from types import MappingProxyType

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ninelives.core.errors import Corrupt, UsageError
from ninelives.core.model.bodies import body_reader
from ninelives.core.model.inbox import Item, ItemKind
from ninelives.core.values.json_schema import Schema, check


class Says(StrEnum):
    """What an answer says."""

    APPROVED = "approved"
    DENIED = "denied"
    VALUE = "value"  # the answer to a question
    HAPPENED = "happened"  # the action in doubt did; with its result, if it has one
    NOT_HAPPENED = "not happened"
    RETRY = "retry"  # the cause is fixed: continue the run
    FAIL = "fail"  # give up: the run ends failed, with the evidence


class Signed(Struct, frozen=True):
    """A person's signature of an answer: when it was made, until when it counts, and an SSH signature.

    `governance.approvers.statement` makes the text that it signs; `signature` is its base64, on one line.
    """

    at_ms: int
    until_ms: int
    signature: str = ""


class Answer(Struct, frozen=True, omit_defaults=True):
    """A person's answer. `value` is encoded as the codec of the requested type encodes it."""

    says: Says
    value: Raw | UnsetType = UNSET
    note: str = ""
    signed: Signed | None = None


class Taken(Struct, frozen=True):
    """The body of an ANSWER record: the item, the person, the time, and the answer."""

    item: str
    kind: ItemKind
    by: str
    at_ms: int
    answer: Answer


class Request(Struct, frozen=True, omit_defaults=True):
    """The body of an ASKED record: an item is opened, or withdrawn.

    `void` is the answer to the item that this one replaces: kept on record, but without effect.
    """

    item: str
    kind: ItemKind
    is_open: bool
    void: Taken | None = None


STARTED_BY, MAY_ACT = "started by", "may still act"
"""Evidence of an action in doubt: the session that started it, and whether that may still finish it."""


class ItemBody(Struct, frozen=True, omit_defaults=True):
    """The body of an inbox item.

    `arguments` and `key` are those of the action in question; `options` or `schema` say what the value of an
    answer may be; `default` applies after the deadline; `evidence` is what else is known, in words.
    With `happened`, the action in doubt is known to have happened: the item asks only for its result.
    """

    what: str
    remedy: str = ""
    arguments: dict[str, Raw] = {}
    key: str = ""
    options: tuple[Raw, ...] = ()
    schema: Schema = {}
    default: Raw | UnsetType = UNSET
    evidence: dict[str, str] = {}
    happened: bool = False


_RETRY_OR_FAIL = (Says.RETRY, Says.FAIL)
FITTING = MappingProxyType(
    {
        ItemKind.APPROVAL: (Says.APPROVED, Says.DENIED),
        ItemKind.QUESTION: (Says.VALUE,),
        ItemKind.DOUBT: (Says.HAPPENED, Says.NOT_HAPPENED, Says.FAIL),
        ItemKind.DIVERGENCE: _RETRY_OR_FAIL,
        ItemKind.DAMAGE: _RETRY_OR_FAIL,
        ItemKind.QUARANTINE: _RETRY_OR_FAIL,
        ItemKind.BUDGET: _RETRY_OR_FAIL,
        ItemKind.RESOURCE: _RETRY_OR_FAIL,
        ItemKind.POLICY: _RETRY_OR_FAIL,
    }
)
VERBS = MappingProxyType(
    {
        Says.APPROVED: "approve",
        Says.DENIED: "deny",
        Says.VALUE: "answer",
        Says.HAPPENED: "settle(happened=True)",
        Says.NOT_HAPPENED: "settle(happened=False)",
        Says.RETRY: "retry",
        Says.FAIL: "fail",
    }
)
"""The call that gives each answer."""

_ENCODE = msgspec.json.Encoder().encode
_ANSWER = msgspec.json.Decoder(Answer).decode
read_taken = body_reader(Taken, "is no answer's record")
_ITEM_BODY = msgspec.json.Decoder(ItemBody).decode


def item_id(run: str, *parts: object) -> str:
    """Return the id of an inbox item: equal parts give an equal id, so a repeated request is one item."""
    named = _ENCODE([run, *map(str, parts)])
    return blake2b(named, digest_size=8).hexdigest()


def write_item_body(body: ItemBody) -> bytes:
    """Return the body of an item."""
    return _ENCODE(body)


def read_item_body(item: Item) -> ItemBody:
    """Return an item's body. Raises Corrupt when we did not write it."""
    try:
        return _ITEM_BODY(item.body)
    except msgspec.DecodeError as error:
        raise Corrupt(f"inbox item {item.id!r} cannot be read: {error}", run=item.run) from None


def write_asking(item: str, kind: ItemKind, *, is_open: bool, void: Item | None = None) -> bytes:
    """Return the body of the record that opens an item, or withdraws it."""
    return _ENCODE(Request(item, kind, is_open, _taken(void) if void is not None else None))


def write_answer(answer: Answer) -> bytes:
    """Return the body of an answer."""
    return _ENCODE(answer)


def read_answer(item: Item) -> Answer:
    """Return the answer to an item. Raises Corrupt when we did not write it."""
    try:
        return _ANSWER(item.answer)
    except msgspec.DecodeError as error:
        raise Corrupt(f"the answer to inbox item {item.id!r} cannot be read: {error}", run=item.run) from None


def write_taken(item: Item) -> bytes:
    """Return the body of the record that takes an item's answer."""
    return _ENCODE(_taken(item))


def _taken(item: Item) -> Taken:
    return Taken(item.id, item.kind, item.by, item.answered_ms or 0, read_answer(item))


def write_default(item: str, kind: ItemKind, at_ms: int, answer: Answer) -> bytes:
    """Return the body of the record that takes the declared default: no answer came before the deadline."""
    return _ENCODE(Taken(item, kind, "", at_ms, answer))


def fitting(kind: ItemKind, *, happened: bool = False) -> tuple[Says, ...]:
    """Return the answers that fit an item; "not happened" does not fit what is known to have `happened`."""
    return tuple(one for one in FITTING[kind] if not (happened and one is Says.NOT_HAPPENED))


def check_answer(item: Item, answer: Answer) -> None:
    """Check that an answer fits an item, before it is recorded.

    Raises UsageError naming the answers that fit, or the path to the part of the value that does not.
    """
    happened = answer.says is Says.NOT_HAPPENED and read_item_body(item).happened
    takes = fitting(item.kind, happened=happened)
    if answer.says not in takes:
        known = ", known to have happened" if happened else ""
        kind = f"an {item.kind}" if item.kind[0] in "aeiou" else f"a {item.kind}"
        raise UsageError(
            f"inbox item {item.id!r} is {kind}{known}: {VERBS[answer.says]} does not answer it",
            run=item.run,
            step=item.step or None,
            remedy=f"It takes {', '.join(VERBS[one] for one in takes)}",
        )
    if answer.value is not UNSET:
        _check_value(item, read_item_body(item), msgspec.json.decode(answer.value))
    elif answer.says is Says.HAPPENED:
        what = f"an answer without a result to inbox item {item.id!r}"
        # An action that returns something needs its result:
        # None would be delivered to code that does not expect it.
        check(read_item_body(item).schema, None, what=what, run=item.run)


def _check_value(item: Item, body: ItemBody, value: object) -> None:
    options = [msgspec.json.decode(option) for option in body.options]
    if options:
        # The types too: in Python 1, 1.0 and True are equal, and they are three answers.
        if not any(type(value) is type(option) and value == option for option in options):
            raise UsageError(
                f"{_shown(value)} is none of the options of inbox item {item.id!r}",
                run=item.run,
                step=item.step or None,
                remedy=f"Answer one of {', '.join(map(_shown, options))}",
            )
        return
    check(body.schema, value, what=f"the answer to inbox item {item.id!r}", run=item.run)


def _shown(value: object) -> str:
    text = _ENCODE(value).decode()
    return text if len(text) <= 60 else f"{text[:60]}…"
