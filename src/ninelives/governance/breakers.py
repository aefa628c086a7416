"""Circuit breakers of all workers: one document for each step that has failed, `breakers/NAME`.

A call that succeeds writes nothing. Failures are written together, each time the thread behind is free; an
opening is one write. A process that calls such steps reads the documents once a second, so after an opening
the others stop within that second; until then their failures are ignored. A breaker holds calls: their runs
park, and come back one after the other when it closes, since each asks again at a time of its own.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import Denied, Permanent, StaleDocument, UsageError
from ninelives.core.governance.breaker import Breaker, BreakerState, claimed, failed, tried
from ninelives.core.governance.verdicts import Call
from ninelives.engine.governor import Hold
from ninelives.engine.spec.registry import Step
from ninelives.governance.background import Background
from ninelives.governance.names import check_names, fits_one
from ninelives.governance.parts import GovernedStore
from ninelives.views import documents
from ninelives.views.escape import shortened

PREFIX = "breakers/"
UNUSED_MS = 600_000
"""A breaker whose next attempt was due so long ago has no calls: they would have made one."""
_READ_SECONDS, _SOON_MS, _ERROR_CHARACTERS = 1.0, 1_000, 200

StateChange = Callable[[BreakerState, int], BreakerState]


class BreakerRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table `[[breaker]]` of a policy file."""

    actions: tuple[str, ...]
    failures: int = 5
    within: str = msgspec.field(default="1m", name="in")
    open: str = "30s"


def held_until(step: str) -> str:
    """Return how each run that waits for this step's breaker begins to say so."""
    return f"until the breaker of {step!r} closes"


def check(
    tables: object, names: Collection[str] | None = None
) -> tuple[tuple[tuple[str, ...], Breaker], ...]:
    """Return the breakers of a policy file, each with its patterns of names. Raises UsageError.

    `names` are those that steps may have, if they are known.
    """
    try:
        rules = msgspec.convert(tables, tuple[BreakerRule, ...])
    except msgspec.ValidationError as error:
        raise UsageError(f"[[breaker]]: {error}", remedy="It has actions, failures, in, open") from error
    for rule in rules:
        if not rule.actions:
            raise UsageError("[[breaker]] names no actions", remedy='Write actions = ["..."]')
        check_names("[[breaker]]", rule.actions, names)
    return tuple(
        (rule.actions, Breaker(failures=rule.failures, within=rule.within, open=rule.open)) for rule in rules
    )


class _Circuit:
    """What this process knows of one step's breaker. `tries` is the call that it may try."""

    def __init__(self, rule: Breaker) -> None:
        self.rule, self.state, self.version = rule, BreakerState(), 0
        self.failed: list[tuple[int, str]] = []
        self.may_try, self.tries, self.is_claiming = False, ("", ""), False


class Breakers:
    """The breakers of this process: a `governance.parts.BreaksCircuits`."""

    def __init__(
        self,
        store: GovernedStore,
        rules: Sequence[tuple[tuple[str, ...], Breaker]],
        declared: Mapping[str, Breaker],
        background: Background,
        changed: Callable[[], None],
    ) -> None:
        self._store, self._rules, self._declared = store, tuple(rules), declared
        self._background, self._changed = background, changed
        self._me = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._circuits: dict[str, _Circuit | None] = {}
        self._changing = threading.Lock()
        self._read_at = 0.0

    def held(self, step: Step, call: Call) -> Hold | None:  # noqa: ARG002 (of the protocol)
        """Return why a call must wait: its breaker is open, and it is not the one that tries."""
        circuit = self._circuit(call.action)
        if circuit is None:
            return None
        self._read_soon()
        state = circuit.state
        if state.state == "closed":
            return None
        now_ms = self._store.now_ms()
        with self._changing:
            if circuit.tries == (call.run, call.step):
                return None
            if circuit.may_try and now_ms < state.until_ms:
                circuit.may_try, circuit.tries = False, (call.run, call.step)
                return None
        if state.until_ms <= now_ms and not circuit.is_claiming:
            circuit.is_claiming = True
            self._background.do(lambda: self._claim(call.action, circuit))
        # Each at a time of its own: they must not come back all at once.
        spread_ms = zlib.crc32(call.run.encode()) % circuit.rule.open_ms
        due_ms = max(state.until_ms, now_ms) + max(spread_ms, _SOON_MS)
        return Hold(f"{held_until(call.action)}, open since: {state.error}", due_ms)

    def outcome(self, step: Step, call: Call, error: BaseException | None) -> None:  # noqa: ARG002
        """Count a failure; settle the call that was tried. A Permanent is an answer, and no failure."""
        circuit = self._circuit(call.action)
        if circuit is None:
            return
        if isinstance(error, Denied) or not (error is None or isinstance(error, Exception)):
            return  # it was not called, or was cut off
        is_failure = error is not None and not isinstance(error, Permanent)
        text = shortened(f"{type(error).__name__}: {error}", _ERROR_CHARACTERS) if error is not None else ""
        if circuit.tries == (call.run, call.step):
            circuit.tries = ("", "")
            said = text if is_failure else None
            self._background.do(lambda: self._tried(call.action, circuit, said))
        elif is_failure and circuit.state.state == "closed":
            with self._changing:
                circuit.failed.append((self._store.now_ms(), text))
                is_first = len(circuit.failed) == 1
            if is_first:
                self._background.do(lambda: self._write_failures(call.action, circuit))

    def refresh(self, store: documents.ReadsDocuments) -> None:
        """Read what all breakers say now."""
        self._read_at = time.monotonic()
        is_changed = False
        for found in documents.listing(store, PREFIX):
            circuit = self._circuit(found.name.removeprefix(PREFIX))
            if circuit is not None and found.version != circuit.version:
                is_changed |= self._take(circuit, _decoded(found.body), found.version)
        if is_changed:
            self._changed()

    # Inside -------------------------------------------------------------------------------------

    def _circuit(self, action: str) -> _Circuit | None:
        try:
            return self._circuits[action]
        except KeyError:
            rule = self._rule(action)
            made = _Circuit(rule) if rule is not None else None
            return self._circuits.setdefault(action, made)

    def _rule(self, action: str) -> Breaker | None:
        for patterns, rule in self._rules:
            if fits_one(action, patterns):
                return rule
        return self._declared.get(action)

    def _read_soon(self) -> None:
        now = time.monotonic()
        if now - self._read_at >= _READ_SECONDS:
            self._read_at = now
            self._background.do(lambda: self.refresh(self._store))

    def _take(self, circuit: _Circuit, state: BreakerState, version: int) -> bool:
        """Take a state over, and return whether calls may pass now that could not before, or the reverse."""
        with self._changing:
            was, circuit.state, circuit.version = circuit.state, state, version
            if state.state != "half" or state.by != self._me:
                circuit.may_try, circuit.tries = False, ("", "")
        return was.state != state.state

    def _change(self, action: str, circuit: _Circuit, change: StateChange) -> BreakerState:
        """Write a breaker's document as `change` makes it of what it is."""
        name = PREFIX + action
        while True:
            found = documents.find(self._store, name)
            state = _decoded(found.body) if found is not None else BreakerState()
            version = found.version if found is not None else 0
            after = change(state, self._store.now_ms())
            if after != state:
                after = replace(after, mark=secrets.token_hex(4))
                try:
                    written = self._store.write_document(name, msgspec.json.encode(after), version=version)
                except StaleDocument:
                    continue
                version = written.version if written is not None else 0
            if self._take(circuit, after, version):
                self._changed()
            return after

    def _write_failures(self, action: str, circuit: _Circuit) -> None:
        with self._changing:
            noted, circuit.failed = circuit.failed, []
        if noted:
            times, text = [when for when, _ in noted], noted[-1][1]
            self._change(action, circuit, lambda state, now: failed(state, circuit.rule, times, now, text))

    def _claim(self, action: str, circuit: _Circuit) -> None:
        try:
            after = self._change(
                action, circuit, lambda state, now: claimed(state, circuit.rule, self._me, now)
            )
        finally:
            circuit.is_claiming = False
        if after.state == "half" and after.by == self._me:
            with self._changing:
                circuit.may_try = True
            self._changed()

    def _tried(self, action: str, circuit: _Circuit, error: str | None) -> None:
        self._change(action, circuit, lambda state, now: tried(state, circuit.rule, self._me, now, error))


def _decoded(body: bytes) -> BreakerState:
    """Return the state of a breaker; one that cannot be read is closed: it protects, it does not permit."""
    try:
        return msgspec.json.decode(body, type=BreakerState)
    except msgspec.DecodeError:
        return BreakerState()


def read_breakers(store: documents.ReadsDocuments) -> dict[str, BreakerState]:
    """Return the breakers that are not closed, by the name of their step."""
    found = {one.name.removeprefix(PREFIX): _decoded(one.body) for one in documents.listing(store, PREFIX)}
    return {name: state for name, state in found.items() if state.state != "closed"}
