"""Declare halts and lift them. Each change is one compare-and-set of the document `halts`.

A halt is in force with that write: from then on the store refuses the intents of all that knew an older
version. The audit log, if it is on, is written after it, since to halt is urgent; each change adds what an
earlier one could not.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.clock import moment
from ninelives.core.durations import duration_ms
from ninelives.core.errors import StaleDocument, UnknownRun, UsageError
from ninelives.core.ids import check_id
from ninelives.core.model.counter import RunCount
from ninelives.core.model.document import DOCUMENT_BYTES, HALTS
from ninelives.core.model.run import Control, RunQuery, RunRow, State
from ninelives.core.model.session import Session
from ninelives.engine.spec.registry import AGENTS
from ninelives.governance.audit_log.entries import append
from ninelives.governance.halts import Halt, HaltList, Lifted, held_words, read_list
from ninelives.governance.parts import GovernedStore

_TEXT_CHARACTERS, _PAGE = 500, 1_000
_LIFTED_AT_MOST = 50

Change = Callable[[HaltList, int], HaltList]


class LiftingStore(GovernedStore, Protocol):
    """What lifting a halt needs of a store."""

    def list_runs(self, query: RunQuery) -> list[RunRow]: ...

    def control_run(self, run: str, control: Control) -> RunRow: ...


class HaltingStore(GovernedStore, Protocol):
    """What declaring a halt needs of a store."""

    def read_run(self, run: str) -> RunRow | None: ...

    def count_runs(self) -> list[RunCount]: ...

    def list_sessions(self) -> Sequence[Session]: ...


class Selectors(Struct, frozen=True, kw_only=True):
    """What a halt holds: all that fits every selector given. Without any, `everything` must say so."""

    agent: str | None = None
    action: str | None = None
    run: str | None = None
    labels: Mapping[str, str] = {}
    everything: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is selected."""
        return not (self.agent or self.action or self.run or self.labels)


def halt(
    store: HaltingStore,
    selectors: Selectors,
    *,
    reason: str,
    by: str,
    until: str | datetime | None = None,
    kills: bool = False,
    id: str | None = None,
) -> Halt:
    """Declare a halt, and return it. Raises UsageError; UnknownRun.

    With an `id` that is there already, that halt is returned. If we die here: it is in force, or nothing
    changed.
    """
    _check(store, selectors, kills=kills)
    now_ms = store.now_ms()
    new = Halt(
        id=id or f"h-{secrets.token_hex(4)}",
        reason=_text("a reason", reason),
        by=_text("the name of the person that halts", by),
        at_ms=now_ms,
        until_ms=until_ms(until, now_ms),
        kills=kills,
        agent=selectors.agent,
        action=selectors.action,
        run=selectors.run,
        labels=dict(selectors.labels),
    )

    def change(known: HaltList, now_ms: int) -> HaltList:
        if any(one.id == new.id for one in known.halts):
            return known
        return replace(known, halts=(*known.halts, replace(new, at_ms=now_ms)))

    written = _changed(store, change)
    # CRASH: halted, and not in the audit log: the next change of halts adds it there.
    log_halts(store, written)
    return next(one for one in written.halts if one.id == new.id)


def unhalt(
    store: LiftingStore, ids: Sequence[str] = (), *, everything: bool = False, by: str, reason: str = ""
) -> tuple[Halt, ...]:
    """Lift halts by their ids, or all, and return them. Raises UsageError for an id that is not in force.

    If we die here: all of them are lifted or none; runs that parked go on within a minute in any case.
    """
    if bool(ids) == everything:
        raise UsageError(
            "nothing says which halts to lift", remedy="Give their ids (ninelives halts lists them), or all"
        )
    by = _text("the name of the person that lifts a halt", by)
    if reason:
        reason = _text("a reason", reason)
    lifted: tuple[Halt, ...] = ()

    def change(known: HaltList, now_ms: int) -> HaltList:
        nonlocal lifted
        unknown = set(ids) - {one.id for one in known.halts}
        if unknown:
            raise UsageError(
                f"no halt {', '.join(sorted(unknown))} is in force",
                remedy="Nothing was lifted; ninelives halts lists what is in force",
            )
        lifted = tuple(one for one in known.halts if everything or one.id in ids)
        ended = tuple(Lifted(halt=one, at_ms=now_ms, by=by, reason=reason) for one in lifted)
        left = tuple(one for one in known.halts if one not in lifted)
        return HaltList(halts=left, lifted=(*known.lifted, *ended))

    written = _changed(store, change)
    # CRASH: lifted; parked runs that were not woken ask again by themselves, within a minute.
    if lifted:
        _wake(store, lifted)
    log_halts(store, written)
    return lifted


def log_halts(store: GovernedStore, known: HaltList) -> None:
    """Add the halts, and those that are over, to the audit log, if it is switched on; each is added once."""
    for one in (*known.halts, *(lifted.halt for lifted in known.lifted)):
        facts = {
            "halt": one.id,
            "what": one.what,
            "reason": one.reason,
            "by": one.by,
            "until_ms": one.until_ms,
        }
        if append(store, "halt", id=f"halt/{one.id}/{one.at_ms}", **facts) is None:
            return  # it is switched off
    for end in known.lifted:
        facts = {"halt": end.halt.id, "what": end.halt.what, "reason": end.reason, "by": end.by}
        append(store, "unhalt", id=f"unhalt/{end.halt.id}/{end.halt.at_ms}", **facts)


def _wake(store: LiftingStore, lifted: tuple[Halt, ...]) -> None:
    """Make runs that parked because of these halts fall due now."""
    words = [held_words(one) for one in lifted]
    query = RunQuery(states=(State.CHECKPOINTED,), limit=_PAGE)
    while True:
        page = store.list_runs(query)
        for run in page:
            if any(word in run.waits for word in words):
                with suppress(UsageError):  # it has ended, or was moved away, since it was listed
                    store.control_run(run.id, Control.WAKE)
        if len(page) < _PAGE:
            return
        query = replace(query, after=page[-1].number)


def until_ms(until: str | datetime | None, now_ms: int) -> int | None:
    """Return the end of a halt by the store's clock: a duration (2h) from now on, or a time with its zone.

    Raises UsageError.
    """
    if until is None:
        return None
    took_ms = duration_ms(until, least_unit="ms") if isinstance(until, str) else None
    if took_ms is not None:
        end_ms = now_ms + took_ms
    else:
        try:
            when = datetime.fromisoformat(until) if isinstance(until, str) else until
        except ValueError:
            when = None
        if when is None or when.tzinfo is None:
            raise UsageError(
                f"until {until!r} is no time",
                remedy="Write 30m, 2h, 1d, or a time with its zone, such as 2027-01-31T10:00Z",
            )
        end_ms = int(when.timestamp() * 1000)
    if end_ms <= now_ms:
        raise UsageError(
            f"until {until!r} is over already: the store's clock says {moment(now_ms):%Y-%m-%d %H:%M:%S}Z",
            remedy="Nothing was halted",
        )
    return end_ms


def _check(store: HaltingStore, selectors: Selectors, *, kills: bool) -> None:
    if selectors.is_empty is not selectors.everything:
        raise UsageError(
            "nothing says what to halt",
            remedy="Nothing was halted. Name an agent, an action, labels or a run, or else everything",
        )
    if kills and selectors.action is not None:
        raise UsageError(
            "which processes carry out an action is not known, so none can be ended",
            remedy="Halt the action without ending processes, or halt its agent",
        )
    for name in ("agent", "action", "run"):
        value = getattr(selectors, name)
        if value is not None:
            check_id(value, f"{name} to halt")
    if selectors.run is not None and store.read_run(selectors.run) is None:
        raise UnknownRun(
            "there is no such run", run=selectors.run, remedy="Nothing was halted; see ninelives ps"
        )
    if selectors.agent is not None:
        known = {one.agent for one in store.count_runs()} | AGENTS.keys()
        known = known.union(*(one.agents for one in store.list_sessions()))
        if selectors.agent not in known:
            raise UsageError(
                f"no agent {selectors.agent!r} has runs or workers here",
                remedy=f"Nothing was halted. There are: {', '.join(sorted(known)) or 'none'}",
            )


def _text(what: str, text: str) -> str:
    text = text.strip()
    if not text or len(text) > _TEXT_CHARACTERS or not text.isprintable():
        raise UsageError(
            f"{what} is required, as one line of at most {_TEXT_CHARACTERS} characters",
            remedy="Nothing was changed",
        )
    return text


def _changed(store: GovernedStore, change: Change) -> HaltList:
    """Write the document as `change` makes it of what it is, however many others write it too."""
    while True:
        known, version = read_list(store)
        now_ms = store.now_ms()
        after = change(known, now_ms)
        if after == known:
            break
        after = _without_old(after, now_ms)
        body = msgspec.json.encode(after)
        if len(body) > DOCUMENT_BYTES:
            raise UsageError(
                f"there is no room for more than {len(known.halts)} halts",
                remedy="Nothing was changed. Lift some, or halt by agent or label instead",
            )
        try:
            store.write_document(HALTS, body, version=version)
        except StaleDocument:
            continue
        break
    return after


def _without_old(known: HaltList, now_ms: int) -> HaltList:
    """Move halts whose time is over to those that are lifted, and keep the last of these."""
    over = tuple(one for one in known.halts if one.is_over(now_ms))
    ended = tuple(Lifted(halt=one, at_ms=one.until_ms or now_ms) for one in over)
    left = tuple(one for one in known.halts if one not in over)
    return HaltList(halts=left, lifted=(*known.lifted, *ended)[-_LIFTED_AT_MOST:])
