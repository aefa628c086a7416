"""The options of `@nl.decision` and `@nl.action`: their types for type checkers, and their defaults.

The typed dicts are what users may write; which names exist is read from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final, Literal, TypedDict

from msgspec import Struct

from ninelives.core.errors import UsageError
from ninelives.core.governance.breaker import Breaker
from ninelives.core.governance.costs import Cost
from ninelives.core.governance.rate import Limit
from ninelives.core.journal.approval import Approval
from ninelives.core.model_calls.declarations import Cache, Hedge
from ninelives.core.values.retry import Retry


class DecisionOptions(TypedDict, total=False):
    """The options of a decision, which actions have too."""

    name: str | None
    retry: Retry | None
    breaker: Breaker | None
    limit: Limit | None
    timeout: float | None
    returns: Any
    ignore: Sequence[str]
    raises: Sequence[type[BaseException]]
    aliases: Sequence[str]
    id: str | Callable[..., str] | None
    upgrade: Callable[[Any], Any] | None
    taint: str | Sequence[str] | None
    cost: float | Decimal | Cost | Callable[..., float | Decimal | Cost] | None
    alternatives: Sequence[Callable[..., Any]]
    hedge: Hedge | None
    cache: Cache | None


class TransactionalOptions(DecisionOptions, total=False):
    """The options of an action with `transaction=`, besides that."""

    reads_only: bool
    approval: bool | Callable[..., object] | Approval
    key: str | Callable[..., str] | None
    key_window: float | timedelta | None
    identity: str | Sequence[str] | None


class ActionOptions(TransactionalOptions, total=False):
    """The options of any other action."""

    resumable: bool
    verify: Callable[..., Any] | None
    settle_after: float | timedelta
    in_doubt: Literal["escalate", "raise"]


class StepOptions(Struct, frozen=True, kw_only=True):
    """The options of one step as they were given, with defaults for the others. Not checked yet."""

    is_decision: bool = False
    name: str | None = None
    retry: Retry | None = None
    breaker: Any = None
    limit: Any = None
    timeout: Any = None
    returns: Any = None
    ignore: Sequence[str] = ()
    raises: Any = ()
    aliases: Sequence[str] = ()
    id: Any = None
    upgrade: Callable[[Any], Any] | None = None
    taint: Any = None
    cost: Any = None
    alternatives: Any = ()
    hedge: Any = None
    cache: Any = None
    reads_only: bool = False
    approval: Any = False
    key: Any = None
    key_window: Any = None
    identity: Any = None
    resumable: bool = True
    verify: Any = None
    settle_after: Any = 0
    in_doubt: str = "escalate"
    transaction: Callable[[], Any] | None = None

    def sets(self, option: str) -> bool:
        """Return whether an option differs from its default."""
        return bool(getattr(self, option) != getattr(_DEFAULTS, option))


_DEFAULTS: Final = StepOptions()
_OF_DECISIONS: Final = DecisionOptions.__optional_keys__
_OF_ACTIONS: Final = ActionOptions.__optional_keys__ | {"transaction"}


def refuse_options(given: dict[str, Any], *, is_decision: bool) -> None:
    """Reject options that do not exist, or that decisions do not have. Raises UsageError."""
    known = _OF_DECISIONS if is_decision else _OF_ACTIONS
    unknown = given.keys() - known - {"reads_only"}  # a decision reads only, whether it says so or not
    if misplaced := sorted(unknown & _OF_ACTIONS):
        raise UsageError(
            f"{misplaced[0]}= is for actions, not for decisions",
            remedy="A decision only asks a model. What touches the world is declared with nl.action",
        )
    if unknown:
        raise UsageError(
            f"there is no option {min(unknown)}=", remedy=f"There are: {', '.join(sorted(known))}"
        )
