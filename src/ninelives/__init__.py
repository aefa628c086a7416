"""Nine Lives: a crash-only runtime for AI agents.

`ninelives.api` lists the public names. It is imported when the first of them is used, so that
`import ninelives` itself is fast. What governs runs is imported only with its own names: a process that
governs nothing does not pay for it. ARCHITECTURE.md, section 2, is the map of the packages.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ninelives.api import *  # noqa: F403 (type checkers and editors find the public names here)
    from ninelives.governance.policy.functions import policy as policy
else:  # hidden from type checkers, so that they report a name which is not there
    _LATER = {"policy": "ninelives.governance.policy.functions"}

    def __getattr__(name: str) -> Any:
        if name == "__all__":  # for `from ninelives import *`
            return __dir__()
        # A name with an underscore is never public: tools that probe for one must not load everything.
        api = None if name.startswith("_") else import_module(_LATER.get(name, "ninelives.api"))
        if not hasattr(api, name):
            raise AttributeError(f"module 'ninelives' has no attribute {name!r}")
        globals()[name] = value = getattr(api, name)
        return value

    def __dir__() -> list[str]:
        public = [name for name in dir(import_module("ninelives.api")) if not name.startswith("_")]
        return [*public, *_LATER, "__version__"]
