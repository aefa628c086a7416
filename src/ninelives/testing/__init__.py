"""Testing agents: a sandbox without a machine's time, scripted models, and kills at every store call.

    from ninelives.testing import Sandbox, Script

pytest has them as fixtures (`sandbox`, `crashproof`) and as the mark `chaos`, by a plugin that it finds
itself; nothing here needs pytest. Each name is loaded when it is first used: the plugin costs who does not
use it nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ninelives.testing.clock import SkippingClock
    from ninelives.testing.handles import SandboxItem, SandboxRun
    from ninelives.testing.kill_trials import NotCrashproof, Trials, crashproof
    from ninelives.testing.processes import chaos
    from ninelives.testing.sandbox import Sandbox, Stuck
    from ninelives.testing.script import Script, after

__all__ = [
    "NotCrashproof",
    "Sandbox",
    "SandboxItem",
    "SandboxRun",
    "Script",
    "SkippingClock",
    "Stuck",
    "Trials",
    "after",
    "chaos",
    "crashproof",
]

_HOMES = {
    "NotCrashproof": "kill_trials",
    "Sandbox": "sandbox",
    "SandboxItem": "handles",
    "SandboxRun": "handles",
    "Script": "script",
    "SkippingClock": "clock",
    "Stuck": "sandbox",
    "Trials": "kill_trials",
    "after": "script",
    "chaos": "processes",
    "crashproof": "kill_trials",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ninelives.testing' has no attribute {name!r}")
    return getattr(import_module(f"ninelives.testing.{home}"), name)
