"""What may be reported, and how severe it is.

An open list: a new kind needs a line in `SEVERITIES`, and a source of its events in `events`.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType

from ninelives.core.model.inbox import ItemKind


class NoticeSeverity(IntEnum):
    """How soon a person should know."""

    INFO = 1
    WARNING = 2
    CRITICAL = 3


FAILURE, OUTAGE, AUDIT, HALT, TEST = "failure", "outage", "audit", "halt", "test"

SEVERITIES = MappingProxyType(
    {
        ItemKind.APPROVAL.value: NoticeSeverity.INFO,
        ItemKind.QUESTION.value: NoticeSeverity.INFO,
        ItemKind.BUDGET.value: NoticeSeverity.WARNING,
        ItemKind.RESOURCE.value: NoticeSeverity.WARNING,
        ItemKind.POLICY.value: NoticeSeverity.WARNING,
        ItemKind.DIVERGENCE.value: NoticeSeverity.WARNING,
        ItemKind.DAMAGE.value: NoticeSeverity.CRITICAL,
        ItemKind.QUARANTINE.value: NoticeSeverity.CRITICAL,
        ItemKind.DOUBT.value: NoticeSeverity.CRITICAL,
        FAILURE: NoticeSeverity.WARNING,  # a run has failed
        OUTAGE: NoticeSeverity.CRITICAL,  # runs have retried the same error for long
        AUDIT: NoticeSeverity.CRITICAL,  # an audit has found faults in the store
        HALT: NoticeSeverity.CRITICAL,  # a person, or a trip, has halted something
    }
)
"""The kinds, each with its severity."""

ITEMS = frozenset(kind.value for kind in ItemKind)
"""Kinds of inbox items: these wait for an answer, so a person may be reminded of them."""

GROUPS = MappingProxyType(
    {"escalation": ITEMS - {ItemKind.APPROVAL.value, ItemKind.QUESTION.value}, "item": ITEMS}
)
"""Names for several kinds. An escalation is an item without whose answer its run does not go on at all."""


def severity_of(kind: str) -> NoticeSeverity:
    """Return the severity of a kind; one that this version does not know is a warning."""
    return SEVERITIES.get(kind, NoticeSeverity.WARNING)
