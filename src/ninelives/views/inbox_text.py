"""Inbox items as commands show them. Field names are stable: programs read them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from ninelives.core.clock import moment
from ninelives.core.errors import Corrupt
from ninelives.core.journal.answers import (
    MAY_ACT,
    STARTED_BY,
    Answer,
    ItemBody,
    Says,
    fitting,
    read_answer,
    read_item_body,
)
from ninelives.core.model.inbox import Item, ItemKind, ItemState
from ninelives.core.model.session import Fate
from ninelives.core.step_ids import step_text
from ninelives.store import Store
from ninelives.views.masking import masked_item

_COMMANDS = {
    Says.APPROVED: ("approve", "{}"),
    Says.DENIED: ("deny", "{}", "--note", "WHY"),
    Says.VALUE: ("resolve", "{}", "--answer", "JSON"),
    Says.HAPPENED: ("resolve", "{}", "--happened", "--result", "JSON"),
    Says.NOT_HAPPENED: ("resolve", "{}", "--not-happened"),
    Says.RETRY: ("resolve", "{}", "--retry"),
    Says.FAIL: ("resolve", "{}", "--fail"),
}

_SIGNED = (Says.APPROVED, Says.DENIED)


class InboxEntry(Struct, frozen=True, kw_only=True):
    """An inbox item, open or answered, with its texts decoded."""

    id: str
    run: str
    kind: ItemKind
    step: str
    to: str
    what: str
    remedy: str
    arguments: dict[str, Raw]
    key: str
    options: tuple[Raw, ...]
    schema: dict[str, Any]
    default: Raw | UnsetType
    evidence: dict[str, str]
    state: ItemState
    opened: datetime
    deadline: datetime | None
    takes: tuple[Says, ...]
    answer: Answer | None
    by: str
    answered: datetime | None


def entry(item: Item) -> InboxEntry:
    """Return an item for people; for one that cannot be read, `what` is the error."""
    item = masked_item(item)
    try:
        request, answer = read_item_body(item), None
        if item.state is ItemState.ANSWERED:
            answer = read_answer(item)
    except Corrupt as error:
        request, answer = ItemBody(what=error.what), None
    return InboxEntry(
        id=item.id,
        run=item.run,
        kind=item.kind,
        step=step_text(item.step) if item.step else "",
        to=item.to,
        what=request.what,
        remedy=request.remedy,
        arguments=request.arguments,
        key=request.key,
        options=request.options,
        schema=request.schema,
        default=request.default,
        evidence=request.evidence,
        state=item.state,
        opened=moment(item.opened_ms),
        deadline=moment(item.deadline_ms) if item.deadline_ms is not None else None,
        takes=fitting(item.kind, happened=request.happened),
        answer=answer,
        by=item.by,
        answered=moment(item.answered_ms) if item.answered_ms is not None else None,
    )


def up_to_date(store: Store, one: InboxEntry) -> InboxEntry:
    """Return an entry with current evidence: whether the worker of an action in doubt may still act."""
    if one.answered is not None or not one.evidence.get(MAY_ACT, "no").startswith("yes"):
        return one
    session = store.read_session(one.evidence.get(STARTED_BY, ""))
    if session is None or session.fate is not Fate.GONE:
        return one
    gone = "no: its worker is gone, with every process that it started"
    return replace(one, evidence={**one.evidence, MAY_ACT: gone})


def ways(takes: Iterable[Says], id: str, to: str) -> list[list[str]]:
    """Return the commands, as lists of words, that give each of these answers to an item.

    What a role approves or denies has to be signed.
    """
    return [
        [word.format(id) for word in _COMMANDS[says]]
        + (["--sign"] if is_signed(to) and says in _SIGNED else [])
        for says in takes
    ]


def is_signed(to: str) -> bool:
    """Return whether an answer counts only if it is signed, as far as the item says."""
    return to.startswith("role:")


def facts(one: InboxEntry) -> list[tuple[str, str]]:
    """Return what a person needs to know of an item before answering, as pairs of name and text."""
    found = [("step", one.step), ("to", one.to), ("key", one.key)]
    found += [(f"{name} =", bytes(value).decode()) for name, value in one.arguments.items()]
    found.append(("options", ", ".join(bytes(option).decode() for option in one.options)))
    if one.schema and not one.options:
        found.append(("answer is", _schema_text(one.schema)))
    if one.default is not UNSET:
        found.append(("default", bytes(one.default).decode()))
    found += list(one.evidence.items())
    found.append(("remedy", one.remedy))
    return [(name, text) for name, text in found if text]


def _schema_text(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(_schema_text(one) for one in schema["anyOf"])
    if "properties" in schema:
        fields = (f"{name}: {_schema_text(one)}" for name, one in schema["properties"].items())
        return "{" + ", ".join(fields) + "}"
    if schema.get("type") == "array" and schema.get("items"):
        return f"[{_schema_text(schema['items'])}, ...]"
    return str(schema.get("format") or schema.get("type") or "any JSON")
