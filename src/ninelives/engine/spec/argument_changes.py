"""Warn once when a body changes its arguments; checked on the first executions of each step.

On replay the body is not executed, so its caller's list or dict stays unchanged, and the run may diverge from
there. Checking every call would cost as much as the fingerprint again; a body that changes its arguments
usually does so from the start.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from ninelives.core.errors import NotDone, NotSerializable, UsageError
from ninelives.core.values.fingerprint import Fingerprint, Taker
from ninelives.core.values.lists import Memory

LOGGER = logging.getLogger("ninelives.run")
CHECKS = 3


class ChecksLeft:
    """How many more executions of a step are checked for changed arguments."""

    __slots__ = ("left",)

    def __init__(self, left: int = CHECKS) -> None:
        self.left = left


class _Step(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def where(self) -> str: ...
    @property
    def checks(self) -> ChecksLeft: ...
    @property
    def fingerprint(self) -> Taker: ...


def require_same(
    step: _Step,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    admitted: bytes,
    memory: Memory,
    *,
    is_first: bool,
) -> None:
    """Refuse a body other arguments than were judged or approved. Raises NotDone before the first attempt.

    Else raises UsageError: earlier attempts may have done something.
    """
    if step.fingerprint(args, kwargs, memory).digest == admitted:
        return
    if is_first:
        raise NotDone("the run's code changed an argument while the call waited to begin")
    raise UsageError(
        f"an argument of {step.name} was changed between two attempts of its body",
        remedy="What was judged or approved is the call as it was: pass a copy, and do not change arguments",
    )


def check(step: _Step, args: tuple[Any, ...], kwargs: dict[str, Any], before: Fingerprint, run: str) -> bool:
    """Compare the arguments after a body with the fingerprint taken before it; warn if they differ.

    Returns whether they are the same.
    """
    step.checks.left -= 1
    try:
        is_same = step.fingerprint(args, kwargs).digest == before.digest
    except NotSerializable:
        is_same = False
    if not is_same:
        step.checks.left = 0
        LOGGER.warning(
            "the body of step %r at %s changes its arguments; on replay it is not executed, and they stay as "
            "they were: return what is new instead",
            step.name,
            step.where,
            extra={"run": run},
        )
    return is_same
