"""Nine Lives: a crash-only runtime for AI agents.

What `import ninelives as nl` gives; each name is loaded when it is first used, so the import is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ninelives import sync
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
    from ninelives.core.journal.approval import Approval
    from ninelives.core.journal.output import Output
    from ninelives.core.journal.settlement import Happened, NotHappened, Unknown
    from ninelives.core.values.retry import Retry
    from ninelives.engine.agent.basics import (
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
    from ninelives.engine.agent.chat_history import repair_history
    from ninelives.engine.agent.children import Child, spawn
    from ninelives.engine.agent.compensations import on_failure
    from ninelives.engine.agent.decorators import action, agent, decision
    from ninelives.engine.agent.output import emit
    from ninelives.engine.agent.resources import Custom, File, GitBranch, Held, Url, hold
    from ninelives.engine.agent.signals import receive
    from ninelives.engine.agent.timers import sleep, sleep_until, timeout
    from ninelives.engine.step.question import ask
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
    "repair_history": "engine.agent.chat_history",
    "on_failure": "engine.agent.compensations",
    "Child": "engine.agent.children",
    "spawn": "engine.agent.children",
    "StaleResource": "core.errors",
    "Custom": "engine.agent.resources",
    "File": "engine.agent.resources",
    "GitBranch": "engine.agent.resources",
    "Held": "engine.agent.resources",
    "Url": "engine.agent.resources",
    "hold": "engine.agent.resources",
    "Approval": "core.journal.approval",
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
    "Output": "core.journal.output",
    "Retry": "core.values.retry",
    "Happened": "core.journal.settlement",
    "NotHappened": "core.journal.settlement",
    "Unknown": "core.journal.settlement",
    "action": "engine.agent.decorators",
    "agent": "engine.agent.decorators",
    "decision": "engine.agent.decorators",
    "ask": "engine.step.question",
    "branch": "engine.agent.basics",
    "gather": "engine.agent.basics",
    "info": "engine.agent.basics",
    "key": "engine.agent.basics",
    "log": "engine.agent.basics",
    "map": "engine.agent.basics",
    "next_turn": "engine.agent.basics",
    "patched": "engine.agent.basics",
    "now": "engine.agent.basics",
    "progress": "engine.agent.basics",
    "random": "engine.agent.basics",
    "timeout": "engine.agent.timers",
    "uuid": "engine.agent.basics",
    "InboxItem": "runtime",
    "emit": "engine.agent.output",
    "receive": "engine.agent.signals",
    "sleep": "engine.agent.timers",
    "sleep_until": "engine.agent.timers",
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
