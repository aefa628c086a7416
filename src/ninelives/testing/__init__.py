"""Tools to test agents: a sandbox with skipped time, scripted models, and kills at every store call.

    from ninelives.testing import Sandbox, Script

pytest offers them as the fixtures `sandbox` and `crashproof` and the mark `chaos`, through a plugin that it
finds by itself; only the plugin needs pytest. Each name is imported on first use, so that the plugin costs
nothing where it is not used.

    sandbox, handles    runs, people and time of a test     clock, loop    time stands still or is skipped
    runtime_life        one runtime, which may be killed    dying_store    a store that dies at a call
    kill_trials         crashproof(): kill at every call    chaos_mark     the same for a pytest test
    processes           chaos(): real processes             script         a scripted model
    plugin              what pytest finds
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ninelives.testing.clock import SkippingClock as SkippingClock
    from ninelives.testing.handles import SandboxItem as SandboxItem
    from ninelives.testing.handles import SandboxRun as SandboxRun
    from ninelives.testing.kill_trials import NotCrashproof as NotCrashproof
    from ninelives.testing.kill_trials import Trials as Trials
    from ninelives.testing.kill_trials import crashproof as crashproof
    from ninelives.testing.processes import chaos as chaos
    from ninelives.testing.sandbox import Sandbox as Sandbox
    from ninelives.testing.sandbox import Stuck as Stuck
    from ninelives.testing.script import Script as Script
    from ninelives.testing.script import after as after

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
__all__ = [*_HOMES]  # noqa: PLE0604 (all are strings)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ninelives.testing' has no attribute {name!r}")
    return getattr(import_module(f"ninelives.testing.{home}"), name)
