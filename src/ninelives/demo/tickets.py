"""The customers' messages: six kinds of tickets, each with its orders and its path through the agent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SupportTicket:
    """A customer's message."""

    id: str
    title: str
    text: str


_KINDS = (
    ("broken, wants a refund", "My order {a} arrived broken. Please refund it."),
    ("wants an installation", "Please send a technician to install what I bought with {a}."),
    ("where is it?", "Where are my orders {a} and {b}?"),
    ("leaks: refund, repair", "{a} leaks. Refund half of it, please, and send a technician."),
    ("too late to return", "I no longer like {a}. Please refund it."),
    ("second one scratched", "I got {a} and {b}; the second one is scratched. Refund that one."),
)


def tickets(count: int) -> list[SupportTicket]:
    """Return `count` tickets, always the same ones."""
    made = []
    for number in range(count):
        title, text = _KINDS[number % len(_KINDS)]
        first = 1000 + 10 * number
        made.append(
            SupportTicket(f"ticket-{number + 1}", title, text.format(a=f"A-{first + 1}", b=f"A-{first + 2}"))
        )
    return made
