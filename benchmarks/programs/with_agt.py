"""Verdicts of the Agent Governance Toolkit (MIT), for its own environment: what one governed call takes.

`govern` wraps a function that does nothing; its audit log is in memory, or off.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from benchmarks.programs import play
from benchmarks.programs.play import Numbers

PACKAGE = "agent-governance-toolkit-core"
_WARM, _CALLS = 200, 2_000


def _policy(rules: int) -> str:
    """Return rules on a field of the call, none of which applies."""
    denied = "".join(
        f"  - name: r{number}\n    condition: \"action.type == 'x{number}'\"\n    action: deny\n"
        for number in range(rules)
    )
    return f"apiVersion: governance.toolkit/v1\nname: p\ndefault_action: allow\nrules:\n{denied}"


def play_verdict(url: str, numbers: Numbers) -> Mapping[str, object]:
    """Time each of many governed calls, in microseconds."""
    logging.disable(logging.CRITICAL)
    govern: Any = importlib.import_module("agentmesh.governance").govern
    governed = govern(lambda **_: None, policy=_policy(numbers["rules"]), audit=bool(numbers["audit"]))
    for _ in range(_WARM):
        governed(action="read", table="t")
    took = []
    for _ in range(_CALLS):
        began = time.perf_counter()
        governed(action="read", table="t")
        took.append((time.perf_counter() - began) * 1e6)
    return {"took": took, "version": metadata.version(PACKAGE)}


if __name__ == "__main__":
    play.perform({"verdict": play_verdict})
