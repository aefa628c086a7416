"""Whose fault an error is: the request's, which no way would answer, or that of the way.

A 400 is the request's. A refused key (401, 403), an unknown model (404), a limit (429), an error of the
server (5xx), a time-out and a lost connection are the way's. An `nl.Permanent` is the request's, unless it
was raised from an error of the way. What a policy denies is one way, too: another one may be allowed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ninelives.core.errors import Denied, Permanent
from ninelives.core.values.retry import PASSING, Retry, classify, reason_for, status_of

_OF_THE_WAY = frozenset({401, 402, 403, 404, 501, 505})
"""Statuses that no retry changes, and that another way may not have."""
_CAUSES = 5


def is_of_way(error: BaseException, retry: Retry) -> bool:
    """Return whether another way may answer what this one failed at."""
    if not isinstance(error, Exception):
        return False
    if isinstance(error, Denied):
        return True
    link: BaseException | None = error
    for _ in range(_CAUSES):
        if link is None:
            break
        if status_of(link) in _OF_THE_WAY:
            return True
        if not isinstance(link, Permanent):
            return classify(link) in PASSING or reason_for(link, retry) in PASSING
        link = link.__cause__
    return False


def chosen(errors: Sequence[BaseException], retry: Retry) -> BaseException:
    """Return the error to raise when no way has answered: one that a retry may change, if there is any.

    An error of the request comes before all: then a retry would only be refused again.
    """
    return min(errors, key=lambda one: _rank(one, retry))


def _rank(error: BaseException, retry: Retry) -> int:
    if not is_of_way(error, retry):
        return 0
    return 1 if reason_for(error, retry) in PASSING else 2
