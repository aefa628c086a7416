"""What this process knows of a step's ways: how long they take, which of them rest, what may be sent again.

It is kept in memory and never waited for. A new process begins with nothing: it hedges from its fiftieth
answer on, and finds out by itself which way fails.
"""

from __future__ import annotations

from ninelives.core.governance.breaker import Breaker
from ninelives.core.model_calls.hedge_budget import HedgeBudget
from ninelives.core.model_calls.latency import Latencies
from ninelives.core.model_calls.way_breaker import WayBreaker
from ninelives.engine.spec.model_calls import ModelCall


class KnownWay:
    """One way of a step. `number` is its place in the declaration.

    `limited_until` is when its provider takes requests again, as a Retry-After said.
    """

    __slots__ = ("_factor", "breaker", "latencies", "limited_until", "name", "number")

    def __init__(self, number: int, name: str, rule: Breaker | None) -> None:
        self.number, self.name, self.latencies = number, name, Latencies()
        self.breaker = None if rule is None else WayBreaker(rule)
        self._factor = None if rule is None else rule.slow_factor
        self.limited_until = 0.0

    @property
    def slow_seconds(self) -> float | None:
        """From when on an answer is slow; None if that is not declared, or not known yet."""
        usual = None if self._factor is None else self.latencies.at(0.5)
        return None if usual is None or self._factor is None else usual * self._factor

    def asks(self) -> bool:
        """Note a request; return whether its answer ends the way's rest."""
        return self.breaker is not None and self.breaker.asks()


class KnownStep:
    """The ways of one step, and its budget of second requests."""

    __slots__ = ("_declared", "_share", "budget", "most", "ways")

    def __init__(self, declared: ModelCall) -> None:
        self._declared, self.most = declared, declared.most
        self.ways = [KnownWay(at, way.name, declared.breaker) for at, way in enumerate(declared.ways)]
        hedge = declared.hedge
        self.budget = None if hedge is None else HedgeBudget(hedge.budget)
        self._share = None if hedge is None else hedge.percentile

    def order(self, now: float) -> list[KnownWay]:
        """Return the ways to ask, the first one first: those that do not rest; all of them if all rest.

        A way whose provider wants to be left alone for now is the last one, and not left out: if no other
        one answers, its error says how long to wait.
        """
        ways = self.ways
        if self._declared.breaker is not None:
            fit = [way for way in ways if way.breaker is not None and way.breaker.may_ask(now)]
            ways = fit or sorted(ways, key=_rests_until)
        if any(way.limited_until > now for way in ways):
            ways = sorted(ways, key=lambda way: way.limited_until > now)
        return ways

    def hedge_seconds(self, first: KnownWay) -> float | None:
        """Return after how long a second request is sent; None while that is not known, or not declared."""
        hedge = self._declared.hedge
        if hedge is None:
            return None
        return float(hedge.after) if self._share is None else first.latencies.at(self._share)


def _rests_until(way: KnownWay) -> float:
    return 0.0 if way.breaker is None else way.breaker.until
