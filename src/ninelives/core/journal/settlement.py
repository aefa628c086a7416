"""The settlement of a non-resumable action: when it may start, and when its fate is known.

    (none) ─intent→ STARTED ─result→ settled
                       ├─proven not done→ VOIDED ─intent (number + 1)→ STARTED …
                       └─the process died, or its body failed without proof→ IN DOUBT
    IN DOUBT ─happened→ settled     IN DOUBT ─did not, and no longer can→ VOIDED     else → a person

Invariants, explored exhaustively by `tests/unit/test_settlement.py`:
- Starts are numbered, and at most one start is not voided: it takes effect at most once.
- "Not happened" counts only if the probe ran after the start could no longer take effect: its process is
  proved gone, or it lost the run and its body's time limit has passed since; and `settle_after`, the time
  that the outside world needs to show the effect, has passed too. A process that is alive may still act:
  then nothing is "not happened", unless the body ended by itself and nothing that it began is still running.
  See docs/decisions/0017.
- Time has passed when the wall clock says so and, within one boot, the boot clock too.
- What stays unknown goes to a person.
If we die anywhere in here, the next owner derives the same from the journal.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from ninelives.core.journal.replay import StepBody
from ninelives.core.model.bodies import body_reader
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
    """What `verify` returns when it cannot decide; the note goes into the inbox item."""

    note: str = ""


class StartBody(StepBody, frozen=True, omit_defaults=True, kw_only=True):
    """The body of a non-resumable action's records before its outcome.

    `n` is the number of the start; `w` the session that made it; `l` its time limit in ms; `b` whether its
    body ends with that limit; `k` its business key. `t` is when it came into doubt, by the store's clock;
    `why` is the reason; `over` says that its body had ended by then, `lost` that it had happened and only
    its result is unknown. `i` is the inbox item that asks a person; `g` names the person that gave up there:
    then a new item asks again. `boot` and `boot_ms` are the boot clock at the moment `t`, or at the start;
    `sid` is the operating system's session id of the process that made the start.
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
read_start = body_reader(StartBody, "is no record of a start")


class Standing(Struct, frozen=True):
    """An action's state by its records: the start that is not voided, its doubt, the next start's number.

    `due_ms` is the earliest time of the next start, by the store's clock.
    """

    start: StartBody | None = None
    doubt: StartBody | None = None
    next: int = 0
    due_ms: int = 0

    @property
    def may_start(self) -> bool:
        """Whether a start is allowed: there is none yet, or all are voided."""
        return self.start is None


class Ruling(StrEnum):
    """The decision about a start in doubt."""

    HAPPENED = "happened"
    VOID = "void"  # it did not happen and no longer can
    WAIT = "wait"  # too early to decide: probe again later
    PERSON = "person"


def standing(records: Iterable[Record]) -> Standing:
    """Return the state of an action without an outcome, by its records in order."""
    now = Standing()
    for record in records:
        now = advance(now, record.kind, read_start(record))
    return now


def advance(now: Standing, kind: Kind, body: StartBody) -> Standing:
    """Return the state of the action after one more record."""
    if kind is Kind.INTENT:
        return Standing(body, None, body.n + 1)
    if kind is Kind.DOUBT:
        # A doubt without an intent of this run: it adopted another run's start, with its key.
        return Standing(now.start or body, body, max(now.next, body.n + 1))
    if kind is Kind.VOIDED:
        # `next` never goes back: each start has a number of its own.
        return Standing(None, None, max(now.next, body.n + 1), body.t)
    return now


def ripe_ms(start: StartBody, fate: Fate, since_ms: int, settle_after_ms: int) -> int | None:
    """Return the time from which "not happened" may be believed; None: never, by what we know so far.

    GONE means that the body has ended, or that its process is proved gone. `since_ms` is when `fate` was
    first known.
    """
    if fate is Fate.GONE:
        return since_ms + settle_after_ms
    # Only a body that ends with its time limit:
    # a plain function cannot be stopped and may act at any later time.
    if fate is Fate.UNKNOWN and start.b:
        return since_ms + start.l + settle_after_ms
    return None


def believed_ms(doubt: StartBody, now_ms: int, boot: str, boot_ms: int) -> int:
    """Return the time by which to judge a doubt: the wall clock, limited by the boot clock.

    The wall clock may have been set forward since; so within one boot, only the time counts that has passed
    by the boot clock. See docs/decisions/0017.
    """
    # Boot clocks of two boots cannot be compared; doubts of older versions have none.
    if not doubt.boot or doubt.boot != boot:
        return now_ms
    return min(now_ms, doubt.t + boot_ms - doubt.boot_ms)


def rule(answer: object, probed_ms: int, ripe: int | None, give_up_ms: int) -> Ruling:
    """Judge a start in doubt by the probe's answer (None: there was none) and the time of the probe.

    From `give_up_ms` on a person is asked, even if "not happened" cannot be believed yet.
    """
    # Believed at any time: what has happened cannot be undone by waiting. "Not happened" can be.
    if isinstance(answer, Happened):
        return Ruling.HAPPENED
    # The probe ran too early, or the process may still act: its "not happened" may be wrong a moment later.
    if ripe is None or probed_ms < ripe:
        return Ruling.WAIT if ripe is not None or probed_ms < give_up_ms else Ruling.PERSON
    if isinstance(answer, NotHappened):
        return Ruling.VOID
    return Ruling.PERSON


def read_body_of_start(body: bytes) -> StartBody:
    """Return a body that `write_start` made."""
    return _DECODE(body)


def write_start(fingerprint: Fingerprint, **known: Any) -> bytes:
    """Return the body of a record of a start."""
    return _ENCODE(StartBody(f=fingerprint.digest.hex(), a=fingerprint.preview(), **known))
