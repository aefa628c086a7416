"""The workloads: what each plays, on which stores, how large, and what comes out."""

from __future__ import annotations

from benchmarks.cells import Workload
from benchmarks.workloads import (
    cold,
    conversation,
    growth,
    parked,
    records,
    recovery,
    replay,
    runs,
    steps,
    takeover,
    waking,
)

_ROOMS = (records, steps, runs, recovery, conversation, replay, waking, parked, cold, takeover, growth)
WORKLOADS: dict[str, Workload] = {
    one.code: one
    for one in sorted((one for room in _ROOMS for one in room.WORKLOADS), key=lambda one: int(one.code[1:]))
}
