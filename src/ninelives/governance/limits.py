"""Rates of all workers, and how far a run may branch out: `[[limit]]` in a policy file.

`per_minute` counts each call in the commit of its intent, in an account of that minute: exact, whatever dies.
A call beyond it waits for the next minute. `max_children` counts in an account of the run. `max_depth` needs
no account: a run knows its depth. Accounts of minutes that are over, and of runs that have ended, are removed
by the thread behind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec
from msgspec import Struct

from ninelives.core.errors import StaleDocument, UsageError
from ninelives.core.governance.accounts import Over, Reserve, Settle
from ninelives.core.governance.verdicts import Ask, Call, Deny, Judgement
from ninelives.core.model.run import RunRow
from ninelives.engine.governor import Hold
from ninelives.engine.spec.registry import Step
from ninelives.governance.background import Background
from ninelives.governance.names import check_agents, check_names, fits_one
from ninelives.governance.parts import GovernedStore
from ninelives.views.documents import listing

PREFIX = "limits/"
_MINUTE_MS = 60_000
_CALLS, _CHILDREN = "calls", "children"
_CLEAN_AFTER = 64
"""After so many new accounts of runs, those of runs that have ended are removed."""


class LimitRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table `[[limit]]` of a policy file."""

    id: str
    actions: tuple[str, ...] = ()
    agents: tuple[str, ...] = ("*",)
    per_minute: int | None = None
    max_depth: int | None = None
    max_children: int | None = None

    def fits_agent(self, agent: str) -> bool:
        """Return whether runs of an agent are limited."""
        return fits_one(agent, self.agents)

    def fits(self, call: Call) -> bool:
        """Return whether its rate counts a call."""
        return fits_one(call.action, self.actions) and self.fits_agent(call.agent)


class LimitStore(GovernedStore, Protocol):
    """What limits need of a store."""

    def read_run(self, run: str) -> RunRow | None: ...


def check(tables: object, names: Collection[str] | None = None) -> tuple[LimitRule, ...]:
    """Return the limits of a policy file; `names` are those that steps may have. Raises UsageError."""
    try:
        rules = msgspec.convert(tables, tuple[LimitRule, ...])
    except msgspec.ValidationError as error:
        remedy = "It has id, actions, agents, per_minute, max_depth, max_children"
        raise UsageError(f"[[limit]]: {error}", remedy=remedy) from error
    seen = set[str]()
    for rule in rules:
        _check(rule, names)
        if rule.id in seen:
            raise UsageError(f"two tables [[limit]] have the id {rule.id!r}", remedy="Give each its own")
        seen.add(rule.id)
    return rules


def _check(rule: LimitRule, names: Collection[str] | None) -> None:
    where = f"[[limit]] {rule.id!r}"
    if not rule.id or not all(one.isalnum() or one in "-_." for one in rule.id):
        raise UsageError(where, remedy="Its id is made of letters, digits, - _ and .")
    limits = (rule.per_minute, rule.max_depth, rule.max_children)
    if all(one is None for one in limits) or any(one is not None and one < 0 for one in limits):
        raise UsageError(
            f"{where} limits nothing", remedy="Give per_minute, max_depth or max_children, 0 or more"
        )
    if (rule.per_minute is not None) != bool(rule.actions):
        raise UsageError(f"{where}: per_minute needs actions, and actions need per_minute")
    check_names(where, rule.actions, names)
    if names is not None:
        check_agents(where, rule.agents)


class CallLimits:
    """The limits of a policy: a `governance.parts.LimitsCalls`."""

    def __init__(self, store: LimitStore, rules: Sequence[LimitRule], background: Background) -> None:
        self._store, self._rules, self._background = store, tuple(rules), background
        self._minute, self._new_runs = -1, 0
        self._by_id: Mapping[str, LimitRule] = {rule.id: rule for rule in rules}

    def judge(self, call: Call) -> Judgement | None:
        """Deny a child that would be too deep."""
        if call.kind != "spawn":
            return None
        for rule in self._rules:
            if rule.max_depth is not None and call.depth >= rule.max_depth and rule.fits_agent(call.agent):
                why = f"the limit {rule.id!r}: a run at depth {call.depth} starts no child runs"
                return Judgement(Deny(why), (rule.id,))
        return None

    def reserves(self, step: Step, call: Call) -> tuple[Reserve, ...]:  # noqa: ARG002 (of the protocol)
        """Return what a call counts for."""
        found = []
        for rule in self._rules:
            if rule.per_minute is not None and rule.fits(call):
                account = f"{PREFIX}{rule.id}/m{self._window()}"
                found.append(Reserve(account, {_CALLS: 1}, {_CALLS: rule.per_minute}))
            if call.kind == "spawn" and rule.max_children is not None and rule.fits_agent(call.agent):
                account = f"{PREFIX}{rule.id}/r{call.run}"
                found.append(Reserve(account, {_CHILDREN: 1}, {_CHILDREN: rule.max_children}))
                self._note_run()
        return tuple(found)

    def over(self, step: Step, call: Call, over: Over) -> Deny | Hold | Ask | None:  # noqa: ARG002
        """Let a call beyond its rate wait for the next minute; deny a child too many."""
        rule = self._by_id.get(over.account.removeprefix(PREFIX).rpartition("/")[0])
        if rule is None or not over.account.startswith(PREFIX):
            return None
        if over.meter == _CHILDREN:
            return Deny(f"the limit {rule.id!r}: a run starts at most {over.limit} child runs")
        if over.limit == 0:
            return Deny(f"the limit {rule.id!r} allows no call at all")
        due_ms = (self._window() + 1) * _MINUTE_MS
        return Hold(f"for the next minute: the limit {rule.id!r} allows {over.limit} calls in each", due_ms)

    def settles(
        self,
        step: Step,  # noqa: ARG002 (of the protocol)
        call: Call,  # noqa: ARG002
        reserved: tuple[Reserve, ...],
        outcome: bytes | BaseException | None,
        charged: dict[str, int],  # noqa: ARG002
    ) -> tuple[Settle, ...]:
        """Keep what was counted; a child that was not started, or is started again, does not count twice."""
        if isinstance(outcome, bytes):
            return ()
        return tuple(
            Settle(one.account, one.amounts, {})
            for one in reserved
            if one.account.startswith(PREFIX) and _CHILDREN in one.amounts
        )

    # Accounts that are over ---------------------------------------------------------------------

    def _window(self) -> int:
        minute = self._store.now_ms() // _MINUTE_MS
        if minute != self._minute:
            self._minute = minute
            self._background.do(lambda: self._remove_minutes(minute))
        return minute

    def _note_run(self) -> None:
        self._new_runs += 1
        if self._new_runs >= _CLEAN_AFTER:
            self._new_runs = 0
            self._background.do(self._remove_runs)

    def _remove_minutes(self, minute: int) -> None:
        """Remove the accounts of minutes before the last one: late commits may still reserve in that."""
        for rule in self._rules:
            prefix = f"{PREFIX}{rule.id}/m"
            for found in listing(self._store, prefix):
                text = found.name.removeprefix(prefix)
                if text.isdecimal() and int(text) < minute - 1:
                    self._remove(found.name, found.version)

    def _remove_runs(self) -> None:
        for rule in self._rules:
            prefix = f"{PREFIX}{rule.id}/r"
            for found in listing(self._store, prefix):
                run = self._store.read_run(found.name.removeprefix(prefix))
                if run is None or run.state.is_final:
                    self._remove(found.name, found.version)

    def _remove(self, name: str, version: int) -> None:
        with suppress(StaleDocument):  # another process removes it, or its run was retried
            self._store.write_document(name, None, version=version)
