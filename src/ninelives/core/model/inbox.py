"""What reaches a run from outside: signals, and people's answers to inbox items."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Signal(Struct, frozen=True, kw_only=True):
    """A message to a run. `number` orders a run's signals; `taken` is the record that took it."""

    run: str
    number: int
    name: str
    id: str
    body: bytes
    at_ms: int
    taken: int | None = None


class ItemKind(StrEnum):
    """Why a person is asked."""

    APPROVAL = "approval"
    QUESTION = "question"
    DOUBT = "doubt"
    DIVERGENCE = "divergence"
    DAMAGE = "damage"
    QUARANTINE = "quarantine"
    BUDGET = "budget"
    RESOURCE = "resource"
    POLICY = "policy"


class ItemState(StrEnum):
    """The state of an inbox item; only an open one waits for an answer."""

    OPEN = "open"
    ANSWERED = "answered"
    CLOSED = "closed"


class NewItem(Struct, frozen=True, kw_only=True):
    """A question for a person. `digest` binds the answer to exactly what was shown."""

    id: str
    kind: ItemKind
    step: str
    digest: bytes
    body: bytes
    to: str = ""
    deadline_ms: int | None = None


class Item(Struct, frozen=True, kw_only=True):
    """An inbox item with its answer, if there is one."""

    id: str
    run: str
    kind: ItemKind
    step: str
    digest: bytes
    body: bytes
    to: str
    deadline_ms: int | None
    opened_ms: int
    state: ItemState = ItemState.OPEN
    answer: bytes = b""
    by: str = ""
    answered_ms: int | None = None
