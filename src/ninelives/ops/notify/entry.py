"""One notice in the outbox of a channel, as its document holds it.

    waiting ──claim──▶ sending ──▶ sent ──remind──▶ waiting
       ▲                 │  └────▶ dropped (no person needs it any more), failed (given up)
       └── refused, or the claim has lapsed

A claim is written before anything is sent, with its owner and its end. It lapses when its end has passed, or
when its owner is a process of this machine that is gone. Whatever is sent again is sent under the same id.
"""

from __future__ import annotations

import os
import secrets
from hashlib import blake2b
from urllib.parse import quote

import msgspec
from msgspec import Struct

from ninelives.engine.machine import host, is_missed

WAITING, SENDING, SENT, FAILED, DROPPED = "waiting", "sending", "sent", "failed", "dropped"
FINAL = frozenset({SENT, FAILED, DROPPED})
_LONGEST_ID = 100


class NoticeEvent(Struct, frozen=True, kw_only=True):
    """Something to report. `id` names it for receivers; `about` is an inbox item, a run or a group of runs.

    `mark` distinguishes two events about the same: a run's length when it failed, the start of an outage.
    """

    id: str
    kind: str
    about: str
    at_ms: int
    run: str = ""
    agent: str = ""
    mark: int = 0


class OutboxEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a document of the outbox.

    `attempts` counts those of the present round; round 0 is the notice, and each later one a reminder.
    `pause_ms` is until when the receiver asked for quiet.
    """

    event: NoticeEvent
    state: str = WAITING
    attempts: int = 0
    round: int = 0
    owner: str = ""
    until_ms: int = 0
    next_ms: int = 0
    pause_ms: int = 0
    sent_ms: int = 0
    error: str = ""


def make_id(store: str, kind: str, *parts: object) -> str:
    """Return the id of an event for receivers: the same whichever process makes it, in ASCII, bounded."""
    said = ".".join([*(quote(str(part), safe="") for part in parts), kind, *([store[:8]] if store else [])])
    if len(said) <= _LONGEST_ID:
        return said
    return f"{blake2b(said.encode(), digest_size=16).hexdigest()}.{kind}"


def digest_of(id: str) -> str:
    """Return the last part of a document's name for an event."""
    return blake2b(id.encode(), digest_size=12).hexdigest()


def message_id(entry: OutboxEntry) -> str:
    """Return the id that a receiver may keep, to accept each message once: all attempts have the same."""
    return entry.event.id + (f".reminder{entry.round}" if entry.round else "")


def new_owner() -> str:
    """Return a name for this process that no other has."""
    return f"{host()}|{os.getpid()}|{secrets.token_hex(4)}"


def is_lapsed(entry: OutboxEntry, me: str, now_ms: int, longest_ms: int) -> bool:
    """Return whether a claim no longer holds; `longest_ms` is the longest that can be made."""
    # A claim that ends later than any that can be made now was made before the clock was set back.
    if not now_ms < entry.until_ms <= now_ms + longest_ms:
        return True
    where, _, rest = entry.owner.partition("|")
    pid = rest.partition("|")[0]
    return entry.owner != me and pid.isdigit() and is_missed(where, int(pid))


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(OutboxEntry).decode
