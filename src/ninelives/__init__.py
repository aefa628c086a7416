"""Nine Lives: a crash-only runtime for AI agents.

What `import ninelives as nl` gives; each name is loaded when it is first used, so the import is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ninelives import sync
    from ninelives.core.approvals import (
        Approval,
    )
    from ninelives.core.errors import (
        ActionError,
        BudgetExceeded,
        Corrupt,
        Denied,
        Divergence,
        DuplicateName,
        IdConflict,
        IllegalTransition,
        InDoubt,
        KeyConflict,
        LeaseLost,
        NineLivesError,
        NoRun,
        NotDone,
        NotSerializable,
        Permanent,
        ReplayError,
        RunCancelled,
        RunError,
        RunEscalated,
        RunFailed,
        RunFinished,
        SchemaMismatch,
        StaleAnswer,
        StaleResource,
        StepFailed,
        StoreError,
        StoreUnavailable,
        StoreUnsafe,
        TimedOut,
        Transient,
        UnknownAgent,
        UnknownRun,
        UsageError,
    )
    from ninelives.core.output import (
        Output,
    )
    from ninelives.core.retry import (
        Retry,
    )
    from ninelives.core.settlement import (
        Happened,
        NotHappened,
        Unknown,
    )
    from ninelives.engine.children import (
        Child,
        spawn,
    )
    from ninelives.engine.compensations import (
        on_failure,
    )
    from ninelives.engine.declare import (
        action,
        agent,
        decision,
    )
    from ninelives.engine.histories import (
        repair_history,
    )
    from ninelives.engine.holds import (
        Custom,
        File,
        GitBranch,
        Held,
        Url,
        hold,
    )
    from ninelives.engine.inside import (
        branch,
        gather,
        info,
        key,
        log,
        map,  # noqa: A004
        next_turn,
        now,
        patched,
        progress,
        random,
        uuid,
    )
    from ninelives.engine.output import (
        emit,
    )
    from ninelives.engine.questions import (
        ask,
    )
    from ninelives.engine.signals import (
        receive,
    )
    from ninelives.engine.timers import (
        sleep,
        sleep_until,
        timeout,
    )
    from ninelives.runtime import (
        InboxItem,
        Run,
        Runtime,
        run,
    )

__version__ = "0.1.0"

__all__ = [
    "ActionError",
    "Approval",
    "BudgetExceeded",
    "Child",
    "Corrupt",
    "Custom",
    "Denied",
    "Divergence",
    "DuplicateName",
    "File",
    "GitBranch",
    "Happened",
    "Held",
    "IdConflict",
    "IllegalTransition",
    "InDoubt",
    "InboxItem",
    "KeyConflict",
    "LeaseLost",
    "NineLivesError",
    "NoRun",
    "NotDone",
    "NotHappened",
    "NotSerializable",
    "Output",
    "Permanent",
    "ReplayError",
    "Retry",
    "Run",
    "RunCancelled",
    "RunError",
    "RunEscalated",
    "RunFailed",
    "RunFinished",
    "Runtime",
    "SchemaMismatch",
    "StaleAnswer",
    "StaleResource",
    "StepFailed",
    "StoreError",
    "StoreUnavailable",
    "StoreUnsafe",
    "TimedOut",
    "Transient",
    "Unknown",
    "UnknownAgent",
    "UnknownRun",
    "Url",
    "UsageError",
    "__version__",
    "action",
    "agent",
    "ask",
    "branch",
    "decision",
    "emit",
    "gather",
    "hold",
    "info",
    "key",
    "log",
    "map",
    "next_turn",
    "now",
    "on_failure",
    "patched",
    "progress",
    "random",
    "receive",
    "repair_history",
    "run",
    "sleep",
    "sleep_until",
    "spawn",
    "sync",
    "timeout",
    "uuid",
]

_HOMES = {
    "repair_history": "engine.histories",
    "on_failure": "engine.compensations",
    "Child": "engine.children",
    "spawn": "engine.children",
    "StaleResource": "core.errors",
    "Custom": "engine.holds",
    "File": "engine.holds",
    "GitBranch": "engine.holds",
    "Held": "engine.holds",
    "Url": "engine.holds",
    "hold": "engine.holds",
    "Approval": "core.approvals",
    "ActionError": "core.errors",
    "BudgetExceeded": "core.errors",
    "Corrupt": "core.errors",
    "Denied": "core.errors",
    "Divergence": "core.errors",
    "DuplicateName": "core.errors",
    "IdConflict": "core.errors",
    "IllegalTransition": "core.errors",
    "InDoubt": "core.errors",
    "KeyConflict": "core.errors",
    "LeaseLost": "core.errors",
    "NineLivesError": "core.errors",
    "NoRun": "core.errors",
    "NotDone": "core.errors",
    "NotSerializable": "core.errors",
    "Permanent": "core.errors",
    "ReplayError": "core.errors",
    "RunCancelled": "core.errors",
    "RunError": "core.errors",
    "RunEscalated": "core.errors",
    "RunFailed": "core.errors",
    "RunFinished": "core.errors",
    "SchemaMismatch": "core.errors",
    "StaleAnswer": "core.errors",
    "StepFailed": "core.errors",
    "StoreError": "core.errors",
    "StoreUnavailable": "core.errors",
    "StoreUnsafe": "core.errors",
    "TimedOut": "core.errors",
    "Transient": "core.errors",
    "UnknownAgent": "core.errors",
    "UnknownRun": "core.errors",
    "UsageError": "core.errors",
    "Output": "core.output",
    "Retry": "core.retry",
    "Happened": "core.settlement",
    "NotHappened": "core.settlement",
    "Unknown": "core.settlement",
    "action": "engine.declare",
    "agent": "engine.declare",
    "decision": "engine.declare",
    "ask": "engine.questions",
    "branch": "engine.inside",
    "gather": "engine.inside",
    "info": "engine.inside",
    "key": "engine.inside",
    "log": "engine.inside",
    "map": "engine.inside",
    "next_turn": "engine.inside",
    "patched": "engine.inside",
    "now": "engine.inside",
    "progress": "engine.inside",
    "random": "engine.inside",
    "timeout": "engine.timers",
    "uuid": "engine.inside",
    "InboxItem": "runtime",
    "emit": "engine.output",
    "receive": "engine.signals",
    "sleep": "engine.timers",
    "sleep_until": "engine.timers",
    "Run": "runtime",
    "Runtime": "runtime",
    "run": "runtime",
}


def __getattr__(name: str) -> Any:
    if name == "sync":
        return import_module("ninelives.sync")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ninelives' has no attribute {name!r}")
    found = getattr(import_module(f"ninelives.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
