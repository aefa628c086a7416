"""Which ways to ask rest: each failed or was slow too often. Of one process, and pure: the time is passed in.

A way that rests is passed over, and the next one is asked instead. When its rest is over, one call tries it;
its answer ends the rest, and a failure or a slow answer begins another one. The rule is the step's `Breaker`,
which also holds the step's calls in the whole store when no way answers.
"""

from __future__ import annotations

from collections import deque

from ninelives.core.governance.breaker import Breaker

JUDGED = 50
"""How many of the latest answers are looked at for slow ones."""
_SLOW_SHARE = 0.1
"""Which share of them must be slow: heavy tails are usual, and no reason to rest."""


class WayBreaker:
    """Whether one way may be asked. `until` is when its rest ends; 0 if it does not rest."""

    __slots__ = ("_failed", "_is_trying", "_rule", "_slow", "until")

    def __init__(self, rule: Breaker) -> None:
        self._rule = rule
        self._failed: deque[float] = deque(maxlen=rule.failures)
        self._slow: deque[bool] = deque(maxlen=JUDGED)
        self._is_trying = False
        self.until = 0.0

    def may_ask(self, now: float) -> bool:
        """Return whether a call may be sent this way: it does not rest, or it is its turn to be tried."""
        return not self.until or (now >= self.until and not self._is_trying)

    def asks(self) -> bool:
        """Note a request; return whether it is the one whose answer ends the rest.

        Before its end a way that rests is only asked if all ways rest.
        """
        if not self.until or self._is_trying:
            return False
        self._is_trying = True
        return True

    def left(self, *, tries: bool) -> None:
        """Note that a request ended without an answer or a failure: it was cancelled."""
        if tries:
            self._is_trying = False

    def answered(self, *, tries: bool) -> None:
        """Note an answer that came in time."""
        self._slow.append(False)
        if tries:
            self._is_trying = False
            self._close()

    def failed(self, now: float, *, tries: bool) -> None:
        """Note a failure of the way; too many within the rule's time begin a rest."""
        if tries:
            self._rest(now)
            return
        self._failed.append(now)
        is_many = len(self._failed) == self._rule.failures
        if is_many and now - self._failed[0] <= self._rule.within_ms / 1000:
            self._rest(now)

    def was_slow(self, now: float, *, tries: bool) -> None:
        """Note an answer that takes too long, when it does; too many of the latest begin a rest."""
        self._slow.append(True)
        slow = sum(self._slow)
        if tries or (slow >= self._rule.failures and slow >= _SLOW_SHARE * len(self._slow)):
            self._rest(now)

    def _rest(self, now: float) -> None:
        self._close()
        self.until = now + self._rule.open_ms / 1000

    def _close(self) -> None:
        self.until, self._is_trying = 0.0, False
        self._failed.clear()
        self._slow.clear()
