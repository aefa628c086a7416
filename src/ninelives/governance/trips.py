"""Trips: halts that declare themselves when calls are denied or fail too often, `[[trip]]` in a policy file.

Denials and failures of all workers are counted in one document for each trip, `trips/ID`. The governor's
background thread writes it, so no call waits for it. The halt is declared before the count is cleared, under
an id made of what it halts: if we die between, the next denial finds that halt and declares no second one.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Collection, Sequence
from functools import partial
from hashlib import blake2b
from typing import Literal

import msgspec
from msgspec import Struct

from ninelives.core.errors import Denied, StaleDocument, UsageError
from ninelives.core.governance.breaker import span_ms
from ninelives.core.governance.verdicts import Call
from ninelives.engine.spec.registry import Step
from ninelives.governance.background import Background
from ninelives.governance.halt_changes import HaltingStore, Selectors, halt
from ninelives.governance.halts import TRIP
from ninelives.governance.names import check_names, fits_one
from ninelives.views import documents

PREFIX = "trips/"
_WHEN = re.compile(r"(denials|failures) > (\d{1,4}) in (\d{1,6}[smhd])", re.ASCII)
_MOST = 1_000
_MOST_TIMES = 4_000
"""Kept in a document, of all that would be halted; of more, those that happened longest ago are dropped."""


class TripRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table `[[trip]]` of a policy file."""

    id: str
    when: str
    halt: Literal["action", "agent", "run", "all"]
    actions: tuple[str, ...] = ("*",)
    until: str | None = None

    @property
    def condition(self) -> tuple[str, int, int]:
        """What is counted, how often it may happen, and in which time (ms). Raises UsageError."""
        found = _WHEN.fullmatch(self.when)
        if found is None or int(found[2]) >= _MOST:
            raise UsageError(
                f"[[trip]] {self.id!r}: when={self.when!r}",
                remedy=f"Write it as denials > 20 in 1m, or failures > 5 in 30s, with less than {_MOST:,}",
            )
        return found[1], int(found[2]), span_ms(f"[[trip]] {self.id!r}", found[3])

    def scope(self, call: Call) -> str:
        """Return what would be halted because of a call."""
        return {"action": call.action, "agent": call.agent, "run": call.run, "all": ""}[self.halt]

    def selectors(self, scope: str) -> Selectors:
        """Return what is halted, for a scope."""
        return Selectors(
            everything=self.halt == "all",
            action=scope if self.halt == "action" else None,
            agent=scope if self.halt == "agent" else None,
            run=scope if self.halt == "run" else None,
        )


def check(tables: object, names: Collection[str] | None = None) -> tuple[TripRule, ...]:
    """Return the trips of a policy file; `names` are those that steps may have. Raises UsageError."""
    try:
        rules = msgspec.convert(tables, tuple[TripRule, ...])
    except msgspec.ValidationError as error:
        raise UsageError(f"[[trip]]: {error}", remedy="It has id, when, halt, actions, until") from error
    seen = set[str]()
    for rule in rules:
        if not re.fullmatch(r"[\w.-]{1,100}", rule.id) or rule.id in seen:
            raise UsageError(
                f"[[trip]] {rule.id!r}", remedy="Give each an id of its own, of letters, digits, - _ and ."
            )
        seen.add(rule.id)
        _ = rule.condition
        if rule.until is not None:
            span_ms(f"[[trip]] {rule.id!r}: until", rule.until)
        check_names(f"[[trip]] {rule.id!r}", rule.actions, names)
    return rules


class TripCounts(Struct, frozen=True):
    """The body of a trip's document: when it happened lately, by what would be halted.

    `mark` is different in each write, so that two equal ones of two processes are not taken for one.
    """

    at_ms: dict[str, tuple[int, ...]] = {}
    mark: str = ""


class Trips:
    """The trips of a policy: a `governance.parts.CountsOutcomes`."""

    def __init__(self, store: HaltingStore, rules: Sequence[TripRule], background: Background) -> None:
        self._store, self._background = store, background
        self._rules = [(rule, *rule.condition) for rule in rules]
        self._happened: dict[tuple[str, str], list[int]] = {}
        self._noting = threading.Lock()

    def outcome(self, step: Step, call: Call, error: BaseException | None) -> None:  # noqa: ARG002
        """Count a denial or a failure."""
        if not isinstance(error, Exception):
            return
        kind = "denials" if isinstance(error, Denied) else "failures"
        now_ms = self._store.now_ms()
        for rule, counted, most, within_ms in self._rules:
            if counted == kind and fits_one(call.action, rule.actions):
                scope = rule.scope(call)
                with self._noting:
                    happened = self._happened.setdefault((rule.id, scope), [])
                    happened.append(now_ms)
                if len(happened) == 1:
                    self._background.do(partial(self._count, rule, most, within_ms, scope))

    def _count(self, rule: TripRule, most: int, within_ms: int, scope: str) -> None:
        """Write what has happened since the last write; halt, if it is too much."""
        with self._noting:
            happened = self._happened.pop((rule.id, scope), [])
        times = self._change(rule, scope, within_ms, happened)
        if len(times) <= most:
            return
        digest = blake2b(f"{rule.id}\0{scope}".encode(), digest_size=4).hexdigest()
        halt(
            self._store,
            rule.selectors(scope),
            reason=f"the trip {rule.id!r}: {rule.when}, and there were {len(times)}",
            by=f"{TRIP}{rule.id}",
            until=rule.until,
            id=f"t-{digest}",
        )
        # CRASH: halted, and still counted: the next denial declares the same halt again, which is there.
        self._change(rule, scope, within_ms, None)

    def _change(
        self, rule: TripRule, scope: str, within_ms: int, happened: Sequence[int] | None
    ) -> tuple[int, ...]:
        """Count what has happened; None clears the count. Return when it happened lately."""
        name = PREFIX + rule.id
        while True:
            known, version = documents.read(self._store, name, TripCounts)
            oldest_ms = self._store.now_ms() - within_ms
            kept = {
                one: tuple(when for when in times if when > oldest_ms)
                for one, times in (known.at_ms if known is not None else {}).items()
            }
            before = kept.pop(scope, ())
            kept[scope] = times = () if happened is None else (*before, *happened)[-_MOST:]
            body = msgspec.json.encode(TripCounts(_latest(kept), secrets.token_hex(4)))
            try:
                self._store.write_document(name, body, version=version)
            except StaleDocument:
                continue
            return times


def _latest(kept: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return what has room in a document: first what happened last."""
    found, room = {}, _MOST_TIMES
    for scope, times in sorted(kept.items(), key=lambda one: one[1][-1:], reverse=True):
        if times and len(times) + len(scope) // 8 <= room:
            found[scope] = times
            room -= len(times) + len(scope) // 8
    return found
