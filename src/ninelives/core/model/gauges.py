"""What a store holds now, counted for metrics: small however many runs there are."""

from __future__ import annotations

from msgspec import Struct

from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import State


class RunGroup(Struct, frozen=True, kw_only=True):
    """The unfinished runs of one agent in one queue and state.

    `paused` of them are paused. `due_ms` is when the first of those that wait for a worker fell or falls due.
    """

    agent: str
    queue: str
    state: State
    runs: int
    paused: int
    due_ms: int | None


class HeldGroup(Struct, frozen=True, kw_only=True):
    """The runs of one agent that a session has."""

    session: str
    agent: str
    runs: int


class LeftGroup(Struct, frozen=True, kw_only=True):
    """The runs of one agent whose worker died or expired and that have not recovered, and since when."""

    agent: str
    runs: int
    since_ms: int


class RetryingGroup(Struct, frozen=True, kw_only=True):
    """The unfinished runs of one agent that retry a step, by why the last attempt failed; empty: unknown."""

    agent: str
    reason: str
    runs: int


class ItemGroup(Struct, frozen=True, kw_only=True):
    """The open inbox items of one agent, kind and step, and when the oldest was opened."""

    agent: str
    kind: ItemKind
    step: str
    items: int
    opened_ms: int


class Gauges(Struct, frozen=True, kw_only=True):
    """What a store holds at one moment. Groups are sorted; `used` are bytes by part of the store."""

    at_ms: int
    runs: tuple[RunGroup, ...]
    held: tuple[HeldGroup, ...]
    left: tuple[LeftGroup, ...]
    retrying: tuple[RetryingGroup, ...]
    items: tuple[ItemGroup, ...]
    used: dict[str, int]
