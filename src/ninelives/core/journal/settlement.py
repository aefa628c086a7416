"""The settlement of a non-resumable action: when it may start, and when its fate is known.

    (none) ─intent→ STARTED ─result→ settled
                       ├─proven not done→ VOIDED ─intent (number + 1)→ STARTED …
                       └─the process died, or its body failed unproved→ IN DOUBT
    IN DOUBT ─happened→ settled     IN DOUBT ─did not, and no longer can→ VOIDED     else → a person

Invariants, explored exhaustively by `tests/unit/test_settlement.py`:
- Starts are numbered, and at most one start is not voided: it takes effect at most once.
- "Not happened" counts only if it was asked after the start could no longer take effect: its process is
  proved gone, or it was cut off and its body's time limit has passed since; and so has the time that the
  world needs to show it. A process that still lives may still act: then nothing is "not happened", unless
  the body ended by itself and nothing that it began is at work.
- Time has passed when the wall clock says so and, within one boot, the boot clock too.
- What stays unknown goes to a person.
If we die anywhere in here, the journal says the same to the next life.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from ninelives.core.errors import Corrupt
from ninelives.core.journal.replay import StepBody
from ninelives.core.model.run import Kind, Record
from ninelives.core.model.session import Fate
from ninelives.core.values.fingerprint import Fingerprint

T = TypeVar("T")


class Happened(Struct, Generic[T], frozen=True):
    """What `verify` returns when the action took effect: with its result."""

    result: T


class NotHappened(Struct, frozen=True):
    """What `verify` returns when the action did not take effect, and no longer can."""


class Unknown(Struct, frozen=True):
    """What `verify` returns when it cannot tell; the note goes to the person who is asked."""

    note: str = ""


class StartBody(StepBody, frozen=True, omit_defaults=True, kw_only=True):
    """The body of a non-resumable action's records before its outcome.

    `n` numbers the start; `w` is the session that made it, `l` its time limit, `b` whether its body ends
    with that; `k` is its business key. `t` is when it came to be in doubt, by the store's clock, `why` says
    why, `over` that its body had ended by then, `lost` that it had happened and only its result is not
    known; `i` names the inbox item that asks a person, `g` who gave it up there: then it is asked anew.
    `boot` and `boot_ms` are the boot clock's word for the same moment as `t`, or as the start, whose
    process belonged to the session `sid` of its machine's processes.
    """

    n: int = 0
    w: str = ""
    l: int = 0  # noqa: E741 (names are short: they are in every record)
    b: bool = False
    k: str = ""
    t: int = 0
    why: str = ""
    over: bool = False
    lost: bool = False
    i: str = ""
    g: str = ""
    boot: str = ""
    boot_ms: int = 0
    sid: int | None = None  # 0 is a session that began outside this container


_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(StartBody).decode


class Standing(Struct, frozen=True):
    """Where an action stands by its records: the start that is not voided, its doubt, the next number.

    `due_ms` is when the next start may be made, by the store's clock.
    """

    start: StartBody | None = None
    doubt: StartBody | None = None
    next: int = 0
    due_ms: int = 0

    @property
    def may_start(self) -> bool:
        """Tell whether a start is allowed: there is none, or all are voided."""
        return self.start is None


class Ruling(StrEnum):
    """What becomes of a start in doubt."""

    HAPPENED = "happened"
    VOID = "void"  # it did not happen and no longer can
    WAIT = "wait"  # too early to say: ask again later
    PERSON = "person"


def standing(records: Iterable[Record]) -> Standing:
    """Return where an action without an outcome stands, by its records in order."""
    now = Standing()
    for record in records:
        now = advance(now, record.kind, read_start(record))
    return now


def advance(now: Standing, kind: Kind, body: StartBody) -> Standing:
    """Return where the action stands after one more record."""
    if kind is Kind.INTENT:
        return Standing(body, None, body.n + 1)
    if kind is Kind.DOUBT:
        # One without an intent of this run: it took over another's start, with its key.
        return Standing(now.start or body, body, max(now.next, body.n + 1))
    if kind is Kind.VOIDED:
        return Standing(None, None, max(now.next, body.n + 1), body.t)
    return now


def ripe_ms(start: StartBody, fate: Fate, since_ms: int, settle_after_ms: int) -> int | None:
    """Return from when on "not happened" may be believed; None: not as long as this is all we know.

    A body that has ended counts as gone, and so does one whose process is proved gone.
    `since_ms` is when it was first known to be so.
    """
    if fate is Fate.GONE:
        return since_ms + settle_after_ms
    if fate is Fate.UNKNOWN and start.b:
        return since_ms + start.l + settle_after_ms
    return None


def believed_ms(doubt: StartBody, now_ms: int, boot: str, boot_ms: int) -> int:
    """Return the time that a doubt is judged by: the wall clock's, which may have been set forward since.

    Within one boot, no more time counts than has passed by the boot clock.
    """
    if not doubt.boot or doubt.boot != boot:
        return now_ms
    return min(now_ms, doubt.t + boot_ms - doubt.boot_ms)


def rule(answer: object, asked_ms: int, ripe: int | None, give_up_ms: int) -> Ruling:
    """Judge a start in doubt by what the probe said, and when it was asked (None: there was no answer).

    `give_up_ms` is when a person is asked although nothing can be believed yet.
    """
    if isinstance(answer, Happened):
        return Ruling.HAPPENED
    if ripe is None or asked_ms < ripe:
        return Ruling.WAIT if ripe is not None or asked_ms < give_up_ms else Ruling.PERSON
    if isinstance(answer, NotHappened):
        return Ruling.VOID
    return Ruling.PERSON


def read_start(record: Record) -> StartBody:
    """Return the body of a record of a start. Raises Corrupt."""
    try:
        return read_body_of_start(record.body)
    except msgspec.DecodeError as error:
        raise Corrupt(f"record {record.seq} is no record of a start: {error}", step=record.step) from None


def read_body_of_start(body: bytes) -> StartBody:
    """Return a body that `write_start` made."""
    return _DECODE(body)


def write_start(asked: Fingerprint, **known: Any) -> bytes:
    """Return the body of a record of a start."""
    return _ENCODE(StartBody(f=asked.digest.hex(), a=asked.preview(), **known))
