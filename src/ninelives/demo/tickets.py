"""The tickets that the support agent handles. Apart from the agent: to read them declares nothing."""

from __future__ import annotations

from dataclasses import dataclass

_KINDS = (
    ("broken, wants a refund", "My order {a} arrived broken. Please refund it."),
    ("wants an installation", "Please send a technician to install what I bought with {a}."),
    ("where is it?", "Where are my orders {a} and {b}?"),
    ("leaks: refund, repair", "{a} leaks. Refund half of it, please, and send a technician."),
    ("too late to return", "I no longer like {a}. Please refund it."),
    ("second one scratched", "I got {a} and {b}; the second one is scratched. Refund that one."),
)


@dataclass(frozen=True)
class SupportTicket:
    """A customer's message."""

    id: str
    title: str
    text: str


def tickets(count: int) -> list[SupportTicket]:
    """Return `count` tickets, always the same ones: six kinds, each with its own orders."""
    made = []
    for number in range(count):
        title, text = _KINDS[number % len(_KINDS)]
        orders = {"a": f"A-{1001 + 10 * number}", "b": f"A-{1002 + 10 * number}"}
        made.append(SupportTicket(f"ticket-{number + 1}", title, text.format(**orders)))
    return made
