"""Attribute orphaned processes without our environment marks to the worker that started them.

The kernel reparents orphans to the nearest subreaper among their ancestors: to us. If we started without
children, such an orphan descends from one of our workers. But as the first process of a container we get all
orphans, and a shell that replaced itself by us (`exec`) left us its other children and their descendants. In
these two cases a process belongs to a worker only if it was seen below that worker while the worker lived. We
scan for that every second, and before we kill a worker ourselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ninelives.supervisor.descendants import Process, processes

_SCAN_MS = 1_000


class Ancestry:
    """Decides which unmarked processes may belong to a worker."""

    def __init__(self) -> None:
        """Check for foreign children; call this before the first worker is started."""
        us = os.getpid()
        self._has_strangers = us == 1 or any(one.parent == us for one in processes())
        self._seen: dict[tuple[int, int], str] = {}
        self._scanned_ms: int | None = None

    def scan(self, workers: Mapping[int, str], now_ms: int, *, is_urgent: bool = False) -> None:
        """Remember the descendants of the workers (pid → mark), at most once a second unless urgent."""
        is_early = self._scanned_ms is not None and now_ms - self._scanned_ms < _SCAN_MS
        if not self._has_strangers or (is_early and not is_urgent):
            return
        self._scanned_ms = now_ms
        running = {one.pid: one for one in processes()}
        found = {}
        for one in running.values():
            mark = _worker_above(one, running, workers) or self._seen.get((one.pid, one.began))
            if mark is not None and one.pid not in workers:
                found[one.pid, one.began] = mark
        self._seen = found

    def may_be_of(self, one: Process, mark: str) -> bool:
        """Return whether an unmarked process that was reparented to us must end with that worker."""
        return not self._has_strangers or self._seen.get((one.pid, one.began)) == mark


def _worker_above(one: Process, running: Mapping[int, Process], workers: Mapping[int, str]) -> str | None:
    above: Process | None = one
    while above is not None:
        if above.pid in workers:
            return workers[above.pid]
        above = running.get(above.parent)
    return None
