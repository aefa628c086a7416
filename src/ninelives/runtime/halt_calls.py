"""What a runtime offers to halt calls and to let them go on. `governance` is imported with the first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ninelives.runtime.inbox import login

if TYPE_CHECKING:
    from ninelives.governance.halts import Halt

T = TypeVar("T")


class HaltCalls:
    """The calls; a change is in force in all workers when it returns."""

    async def call(self, work: Callable[..., T], *values: Any) -> T:
        """Call `work(store, *values)` in a thread. Raises what it raises."""
        raise NotImplementedError

    async def halt(
        self,
        action: str | None = None,
        agent: str | None = None,
        labels: Mapping[str, str] | None = None,
        run: str | None = None,
        *,
        reason: str,
        by: str | None = None,
        everything: bool = False,
        until: str | datetime | None = None,
        kill: bool = False,
    ) -> Halt:
        """Halt the calls that fit all that is given, in all workers, and return the halt: they wait.

        `by`: your name; default: the login. `until`: 30m, 2h, or a time with its zone. `kill`: supervisors
        also end, with SIGKILL, the worker processes that execute halted runs.
        Raises UsageError; UnknownRun.
        """
        from ninelives.governance.halt_changes import Selectors, halt

        chosen = Selectors(action=action, agent=agent, labels=labels or {}, run=run, everything=everything)
        person = login() if by is None else by
        return await self.call(
            lambda store: halt(cast(Any, store), chosen, reason=reason, by=person, until=until, kills=kill)
        )

    async def unhalt(
        self, *ids: str, everything: bool = False, by: str | None = None, reason: str = ""
    ) -> Sequence[Halt]:
        """Lift halts by their ids, or all, and return them: what they held goes on. Raises UsageError."""
        from ninelives.governance.halt_changes import unhalt

        person = login() if by is None else by
        return await self.call(
            lambda store: unhalt(cast(Any, store), ids, everything=everything, by=person, reason=reason)
        )

    async def halts(self) -> Sequence[Halt]:
        """Return the halts that are in force."""
        from ninelives.governance.halts import read_halts

        return await self.call(lambda store: read_halts(cast(Any, store), store.now_ms()))
