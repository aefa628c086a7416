"""Rates that providers allow, kept by all workers together: one document for each key, `rates/KEY`.

A process takes a part of what there is ahead, about what it uses in a quarter of a second, in one write; a
call then takes its own from that, in memory. So no number of workers goes beyond the limit, and what a killed
process had taken is lost, which is no more than that part. A call that has to wait is held until its turn, as
far as this process knows: for seconds in memory, for longer its run parks.

A provider's Retry-After (or a failure of rates without one) is written at once, and read by each process
that calls such steps, once a second: a hundred runs do not all find out for themselves.
"""

from __future__ import annotations

import secrets
import threading
import time
import zlib
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import StaleDocument, UsageError
from ninelives.core.governance.rate import (
    METERS,
    MOST_PAUSE_MS,
    REQUESTS,
    TOKENS,
    Limit,
    RateState,
    due_ms,
    filled,
    plausible,
)
from ninelives.core.governance.rate import paused as paused_state
from ninelives.core.governance.rate import taken as taken_from
from ninelives.core.governance.verdicts import Call
from ninelives.core.values.retry import Reason, classify, retry_after_seconds
from ninelives.engine.governor import Hold
from ninelives.engine.spec.registry import Step
from ninelives.governance.background import Background
from ninelives.governance.budgets.estimates import declared, limit_of_tokens
from ninelives.governance.parts import GovernedStore
from ninelives.views import documents
from ninelives.views.escape import shortened

PREFIX = "rates/"
_READ_SECONDS, _LEASE_MS, _FORGET_MS = 1.0, 2_000, 3_600_000
_AHEAD_SHARE = 240
"""Which part of a minute's amount a process takes ahead."""
_UNASKED_PAUSE_MS, _LEAST_WAIT_MS, _AHEAD_MS, _ERROR_CHARACTERS = 1_000, 100, 250, 200
_MINUTE_MS, _NO_LIMIT, _MOST_GRANTED = 60_000, 2**60, 10_000


class _Grant(Struct, frozen=True):
    """What a call was let through with."""

    tokens: int
    at_ms: int


class _Turn(Struct, frozen=True):
    """A call that waits: what it needs, and when it asks again."""

    tokens: int
    due_ms: int


class _Rate:
    """What this process knows of one key's rate, and what it has taken of it."""

    def __init__(self, key: str, limit: Limit) -> None:
        self.key, self.limit = key, limit
        self.state, self.version = RateState(), 0
        self.mine: dict[str, int] = dict.fromkeys(METERS, 0)
        self.taken_ms = self.due_ms = self.seen_ms = 0
        self.usual_tokens = 0
        self.granted: dict[tuple[str, str], _Grant] = {}
        self.turns: dict[tuple[str, str], _Turn] = {}
        self.most_granted = _MOST_GRANTED
        self.is_taking = False

    @property
    def is_counted(self) -> bool:
        """Whether anything but a Retry-After holds calls."""
        return self.limit.per_minute is not None or self.limit.tokens_per_minute is not None

    def has(self, tokens: int) -> bool:
        """Return whether what was taken is enough for a call."""
        needs = {REQUESTS: 1, TOKENS: tokens}
        return all(self.mine[one] >= needs[one] for one in METERS if self.limit.amount(one) is not None)

    def turn(self, who: tuple[str, str], tokens: int, now_ms: int) -> _Turn:
        """Return when a call asks again: the same until then, behind those that wait already."""
        known = self.turns.get(who)
        if known is not None and now_ms < known.due_ms:
            return known
        self.turns = {one: turn for one, turn in self.turns.items() if turn.due_ms > now_ms and one != who}
        pause = max(
            len(self.turns) * _MINUTE_MS // (self.limit.per_minute or _MINUTE_MS),
            sum(one.tokens for one in self.turns.values())
            * _MINUTE_MS
            // (self.limit.tokens_per_minute or _NO_LIMIT),
        )
        first_ms = self.due_ms if self.due_ms > now_ms else now_ms + _LEAST_WAIT_MS
        made = self.turns[who] = _Turn(tokens, first_ms + pause)
        return made

    def see(self, now_ms: int) -> None:
        """Note the time. A clock that was set back makes all times that were computed before void."""
        if now_ms < self.seen_ms - _LEASE_MS:
            self.due_ms, self.taken_ms, self.turns = 0, now_ms, {}
        self.seen_ms, self.state = now_ms, plausible(self.state, now_ms)

    def use(self, requests: int, tokens: int) -> None:
        """Use up what was taken, or owe it."""
        self.mine[REQUESTS] -= requests
        self.mine[TOKENS] -= tokens


def declared_limits(steps: Mapping[str, Step]) -> dict[str, tuple[str, Limit]]:
    """Return the key and the limit of each step that declares one. Raises UsageError.

    Steps that share a key must agree on its numbers.
    """
    found: dict[str, tuple[str, Limit]] = {}
    by_key: dict[str, tuple[str, Limit]] = {}
    for name, step in steps.items():
        if step.limit is None:
            continue
        key = step.limit.key or name
        first, known = by_key.setdefault(key, (name, step.limit))
        if replace(known, key=key) != replace(step.limit, key=key):
            raise UsageError(
                f"{first} and {name} share the limit {key!r}, with different numbers",
                remedy="Declare the limit once, and give it to both",
            )
        found[name] = (key, step.limit)
    return found


class Rates:
    """The rates of this process: holds calls and counts outcomes (`governance.parts`)."""

    def __init__(
        self,
        store: GovernedStore,
        limits: Mapping[str, tuple[str, Limit]],
        background: Background,
        changed: Callable[[], None],
    ) -> None:
        self._store, self._background, self._changed = store, background, changed
        by_key = {key: _Rate(key, limit) for key, limit in limits.values()}
        self._rates = {name: by_key[key] for name, (key, _) in limits.items()}
        self._by_key = by_key
        self._changing = threading.Lock()
        self._read_at = 0.0

    def held(self, step: Step, call: Call) -> Hold | None:
        """Return why a call must wait now; a call that may go takes what it needs."""
        rate = self._rates.get(call.action)
        if rate is None:
            return None
        self._read_soon()
        now_ms, who = self._store.now_ms(), (call.run, call.step)
        with self._changing:
            if who in rate.granted:
                return None
            rate.see(now_ms)
            if now_ms < rate.state.until_ms:
                return Hold(
                    f"until {rate.key!r} takes calls again: {rate.state.error}",
                    _spread(rate.state.until_ms, now_ms, call.run),
                    is_brief=True,
                )
            tokens = _estimate(rate, step, call)
            self._expire(rate, now_ms)
            if not rate.is_counted or rate.has(tokens):
                rate.use(1, tokens)
                rate.granted[who] = _Grant(tokens, now_ms)
                rate.turns.pop(who, None)
                return None
            turn = rate.turn(who, tokens, now_ms)
            if not rate.is_taking and now_ms >= rate.due_ms:
                rate.is_taking = True
                self._background.do(lambda: self._take(rate))
        return Hold(f"for its turn under the limit of {rate.key!r}", turn.due_ms, is_brief=True)

    def outcome(
        self,
        step: Step,  # noqa: ARG002 (of the protocol)
        call: Call,
        error: BaseException | None,
        tokens: int = 0,
        requests: int = 1,
    ) -> None:
        """Count what a call has really used; note a provider that wants to be left alone."""
        rate = self._rates.get(call.action)
        if rate is None:
            return
        with self._changing:
            grant = rate.granted.pop((call.run, call.step), None)
            if grant is not None:
                rate.use(requests - 1, tokens - grant.tokens if error is None else 0)
            if grant is not None and error is None:
                # What an answer usually takes, for calls that do not say how much they may take.
                rate.usual_tokens = (rate.usual_tokens * 7 + tokens) // 8 if rate.usual_tokens else tokens
        if isinstance(error, Exception) and classify(error) is Reason.RATE_LIMITED:
            now_ms = self._store.now_ms()
            pause = retry_after_seconds(error, now_ms / 1000)
            until_ms = now_ms + (
                _UNASKED_PAUSE_MS if pause is None else int(min(pause * 1000, MOST_PAUSE_MS))
            )
            text = shortened(f"{type(error).__name__}: {error}", _ERROR_CHARACTERS)
            with self._changing:
                rate.state = paused_state(rate.state, until_ms, text)
            self._background.do(lambda: self._pause(rate, until_ms, text))

    def refresh(self, store: documents.ReadsDocuments) -> None:
        """Read what all rates say now."""
        self._read_at = time.monotonic()
        for found in store.read_documents(PREFIX):
            rate = self._by_key.get(found.name.removeprefix(PREFIX))
            if rate is not None and found.version != rate.version:
                self._know(rate, _decoded(found.body), found.version)

    # Inside -------------------------------------------------------------------------------------

    def _read_soon(self) -> None:
        now = time.monotonic()
        if now - self._read_at >= _READ_SECONDS:
            self._read_at = now
            self._background.do(lambda: self.refresh(self._store))

    def _know(self, rate: _Rate, state: RateState, version: int) -> None:
        with self._changing:
            known, rate.version = rate.state, version
            # A pause that is still being written is not forgotten.
            rate.state = paused_state(state, known.until_ms, known.error)

    def _expire(self, rate: _Rate, now_ms: int) -> None:
        """Give up what was taken and not used: it would add up to a burst. Debts stay."""
        if now_ms - rate.taken_ms > _LEASE_MS:
            for meter, amount in rate.mine.items():
                rate.mine[meter] = min(amount, 0)
        if len(rate.granted) > rate.most_granted:
            rate.granted = {
                who: grant for who, grant in rate.granted.items() if now_ms - grant.at_ms < _FORGET_MS
            }
            # Not at each call from now on: it would look at all of them each time.
            rate.most_granted = max(_MOST_GRANTED, 2 * len(rate.granted))

    def _take(self, rate: _Rate) -> None:
        try:
            self._change(rate, lambda state, now_ms: self._taken(rate, state, now_ms))
        finally:
            with self._changing:
                rate.is_taking = False
        self._changed()

    def _taken(self, rate: _Rate, state: RateState, now_ms: int) -> tuple[RateState, Callable[[], None]]:
        with self._changing:
            waiting = [one.tokens for one in rate.turns.values() if one.due_ms <= now_ms + _AHEAD_MS]
            debts = {meter: max(0, -amount) for meter, amount in rate.mine.items()}
        first = waiting[0] if waiting else 0
        least = {REQUESTS: debts[REQUESTS] + 1, TOKENS: debts[TOKENS] + first}
        ahead = {meter: (rate.limit.amount(meter) or 0) // _AHEAD_SHARE for meter in METERS}
        wanted = {
            REQUESTS: debts[REQUESTS] + max(1, len(waiting)) + ahead[REQUESTS],
            TOKENS: debts[TOKENS] + sum(waiting) + ahead[TOKENS],
        }
        after, got = taken_from(state, rate.limit, now_ms, wanted, least)

        def done() -> None:
            with self._changing:
                rate.due_ms = 0 if got else due_ms(filled(after, rate.limit, now_ms), rate.limit, least)
                if got:
                    rate.taken_ms = now_ms
                    for meter, amount in got.items():
                        rate.mine[meter] += amount

        return (after if got else state), done

    def _pause(self, rate: _Rate, until_ms: int, error: str) -> None:
        self._change(rate, lambda state, _: (paused_state(state, until_ms, error), lambda: None))
        self._changed()

    def _change(
        self, rate: _Rate, change: Callable[[RateState, int], tuple[RateState, Callable[[], None]]]
    ) -> None:
        """Write a rate's document as `change` makes it of what it is; call what it returns once it is so."""
        name = PREFIX + rate.key
        while True:
            found = documents.find(self._store, name)
            state = _decoded(found.body) if found is not None else RateState()
            version = found.version if found is not None else 0
            now_ms = self._store.now_ms()
            after, done = change(plausible(state, now_ms), now_ms)
            if after != state:
                after = replace(after, mark=secrets.token_hex(4))
                try:
                    written = self._store.write_document(name, msgspec.json.encode(after), version=version)
                except StaleDocument:
                    continue
                version = written.version if written is not None else 0
            self._know(rate, after, version)
            # CRASH: taken in the store and unknown here: it is lost, and nothing goes beyond the limit.
            done()
            return


def _estimate(rate: _Rate, step: Step, call: Call) -> int:
    """Return how many tokens a call may take: what it declares, or allows; else what calls usually take."""
    if rate.limit.tokens_per_minute is None:
        return 0
    try:
        cost = declared(step, call).tokens
    except Exception:  # noqa: BLE001 (a budget refuses such a call; a rate only guesses)
        cost = None
    if cost is not None:
        return cost
    written = limit_of_tokens(call.args)
    if written is not None and not rate.usual_tokens:
        return written
    return rate.usual_tokens


def _spread(until_ms: int, now_ms: int, run: str) -> int:
    """Return when a run asks again: each at a time of its own, so that they do not come back all at once."""
    width = max(500, (until_ms - now_ms) // 10)
    return until_ms + zlib.crc32(run.encode()) % width


def _decoded(body: bytes) -> RateState:
    """Return the state of a rate; one that cannot be read begins again: it spares a provider, no more."""
    try:
        return msgspec.json.decode(body, type=RateState)
    except msgspec.DecodeError:
        return RateState()
