"""What a person is asked, and what was answered: the bodies of inbox items, the same for all who read them.

`Asked` is the body of an item: shown to people, and enough to judge an answer where the agent's code is not
loaded. `Answer` is what came back. Which words answer which kind of item is one table, `FITTING`; whatever it
does not hold is refused before anything is written.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from types import MappingProxyType

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ninelives.core.errors import Corrupt, UsageError
from ninelives.core.model.inbox import Item, ItemKind
from ninelives.core.model.run import Record
from ninelives.core.values.json_schema import Schema, check


class Says(StrEnum):
    """What an answer says."""

    APPROVED = "approved"
    DENIED = "denied"
    VALUE = "value"  # the answer to a question
    HAPPENED = "happened"  # of what was in doubt; with its result, if it has one
    NOT_HAPPENED = "not happened"
    RETRY = "retry"  # the cause is gone: go on
    FAIL = "fail"  # give up: the run ends failed, with the evidence


class Answer(Struct, frozen=True, omit_defaults=True):
    """A person's answer. `value` is encoded as the codec of what was asked for would."""

    says: Says
    value: Raw | UnsetType = UNSET
    note: str = ""


class Taken(Struct, frozen=True):
    """The body of an ANSWER record: which item, who answered it and when, and what."""

    item: str
    kind: ItemKind
    by: str
    at_ms: int
    answer: Answer


class Request(Struct, frozen=True, omit_defaults=True):
    """The body of an ASKED record: an item is opened, or withdrawn.

    `void` is what was answered to the item whose place it takes: it is on record, and counts for nothing.
    """

    item: str
    kind: ItemKind
    is_open: bool
    void: Taken | None = None


STARTED_BY, MAY_ACT = "started by", "may still act"
"""Evidence of what is in doubt: the session that started it, and whether that could still finish it."""


class Asked(Struct, frozen=True, omit_defaults=True):
    """The body of an inbox item.

    `arguments` and `key` are those of the action in question; `options` or `schema` say what the value of an
    answer may be; `default` is what holds after the deadline; `evidence` is whatever else is known, in words.
    With `happened`, what was in doubt is known to have happened: only its result is asked for.
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


_GO_ON = (Says.RETRY, Says.FAIL)
FITTING = MappingProxyType(
    {
        ItemKind.APPROVAL: (Says.APPROVED, Says.DENIED),
        ItemKind.QUESTION: (Says.VALUE,),
        ItemKind.DOUBT: (Says.HAPPENED, Says.NOT_HAPPENED, Says.FAIL),
        ItemKind.DIVERGENCE: _GO_ON,
        ItemKind.DAMAGE: _GO_ON,
        ItemKind.QUARANTINE: _GO_ON,
        ItemKind.BUDGET: _GO_ON,
        ItemKind.RESOURCE: _GO_ON,
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
"""What a person calls to say it."""

_ENCODE = msgspec.json.Encoder().encode
_ANSWER = msgspec.json.Decoder(Answer).decode
_TAKEN = msgspec.json.Decoder(Taken).decode
_ASKED = msgspec.json.Decoder(Asked).decode


def item_id(run: str, *parts: object) -> str:
    """Return the id of an inbox item: the same whenever the same is asked at the same place."""
    told = _ENCODE([run, *map(str, parts)])
    return blake2b(told, digest_size=8).hexdigest()


def write_asked(asked: Asked) -> bytes:
    """Return the body of an item."""
    return _ENCODE(asked)


def read_asked(item: Item) -> Asked:
    """Return what an item asks. Raises Corrupt when it is no body of ours."""
    try:
        return _ASKED(item.body)
    except msgspec.DecodeError as error:
        raise Corrupt(f"inbox item {item.id!r} cannot be read: {error}", run=item.run) from None


def write_asking(item: str, kind: ItemKind, *, is_open: bool, void: Item | None = None) -> bytes:
    """Return the body of the record that opens an item, or withdraws it."""
    return _ENCODE(Request(item, kind, is_open, _taken(void) if void is not None else None))


def write_answer(answer: Answer) -> bytes:
    """Return the body of an answer."""
    return _ENCODE(answer)


def read_answer(item: Item) -> Answer:
    """Return what was answered to an item. Raises Corrupt when it is no answer of ours."""
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
    """Return the body of the record that takes a declared default for an answer: nobody gave one in time."""
    return _ENCODE(Taken(item, kind, "", at_ms, answer))


def read_taken(record: Record) -> Taken:
    """Return what an ANSWER record took. Raises Corrupt when it is none of ours."""
    try:
        return _TAKEN(record.body)
    except msgspec.DecodeError as error:
        raise Corrupt(f"record {record.seq} is no answer's record: {error}", step=record.step) from None


def fitting(kind: ItemKind, *, happened: bool = False) -> tuple[Says, ...]:
    """Return what may be answered to an item; not "not happened" to what is known to have `happened`."""
    return tuple(one for one in FITTING[kind] if not (happened and one is Says.NOT_HAPPENED))


def check_answer(item: Item, answer: Answer) -> None:
    """Check that an answer answers an item, before it is given.

    Raises UsageError naming what would, or the path to what does not fit.
    """
    happened = answer.says is Says.NOT_HAPPENED and read_asked(item).happened
    takes = fitting(item.kind, happened=happened)
    if answer.says not in takes:
        known = ", known to have happened" if happened else ""
        raise UsageError(
            f"inbox item {item.id!r} is {_a(item.kind)}{known}: {VERBS[answer.says]} does not answer it",
            run=item.run,
            step=item.step or None,
            remedy=f"It takes {', '.join(VERBS[one] for one in takes)}",
        )
    if answer.value is not UNSET:
        _check_value(item, read_asked(item), msgspec.json.decode(answer.value))
    elif answer.says is Says.HAPPENED:
        what = f"no result, which is null, for inbox item {item.id!r}"
        check(read_asked(item).schema, None, what=what, run=item.run)


def _a(kind: ItemKind) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _check_value(item: Item, asked: Asked, value: object) -> None:
    options = [msgspec.json.decode(option) for option in asked.options]
    if options:
        if not any(type(value) is type(option) and value == option for option in options):
            raise UsageError(
                f"{_shown(value)} is none of the options of inbox item {item.id!r}",
                run=item.run,
                step=item.step or None,
                remedy=f"Answer one of {', '.join(map(_shown, options))}",
            )
        return
    check(asked.schema, value, what=f"the answer to inbox item {item.id!r}", run=item.run)


def _shown(value: object) -> str:
    text = _ENCODE(value).decode()
    return text if len(text) <= 60 else f"{text[:60]}…"
