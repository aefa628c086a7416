"""Whose a process is that has lost its parent and cleared its environment.

What is handed to a subreaper descends from it. If we began without children, that is from our workers. But as
the first process of a container we are handed everybody's orphans, and a shell that replaced itself by us has
left us its other children, with all that these start. Then only those are a worker's that were seen
beneath it while it lived: looked at every second, and before we kill it ourselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ninelives.supervisor.descendants import Process, processes

_LOOK_MS = 1_000


class Kin:
    """The unmarked processes that may be a worker's."""

    def __init__(self) -> None:
        """Look who is there before the first worker is started."""
        us = os.getpid()
        self._has_strangers = us == 1 or any(one.parent == us for one in processes())
        self._seen: dict[tuple[int, int], str] = {}
        self._looked_ms: int | None = None

    def look(self, workers: Mapping[int, str], now_ms: int, *, is_urgent: bool = False) -> None:
        """Note who descends from the workers, given with their marks, if it is time to look."""
        is_early = self._looked_ms is not None and now_ms - self._looked_ms < _LOOK_MS
        if not self._has_strangers or (is_early and not is_urgent):
            return
        self._looked_ms = now_ms
        everyone = {one.pid: one for one in processes()}
        found = {}
        for one in everyone.values():
            ward = _ward_above(one, everyone, workers) or self._seen.get((one.pid, one.began))
            if ward is not None and one.pid not in workers:
                found[one.pid, one.began] = ward
        self._seen = found

    def may_be_of(self, one: Process, ward: str) -> bool:
        """Tell whether a process without a mark, that was handed to us, is to end with that worker."""
        return not self._has_strangers or self._seen.get((one.pid, one.began)) == ward


def _ward_above(one: Process, everyone: Mapping[int, Process], workers: Mapping[int, str]) -> str | None:
    above: Process | None = one
    while above is not None:
        if above.pid in workers:
            return workers[above.pid]
        above = everyone.get(above.parent)
    return None
