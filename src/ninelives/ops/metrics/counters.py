"""The store's counters as samples, each from 0 on. `core.rules.counting` says what they mean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate, product

from msgspec import Struct

from ninelives.core.model.counter import Counter
from ninelives.core.rules.counting import BUCKETS
from ninelives.ops.metrics.families import FAMILIES, OPTIONAL, VALUES, MetricType

Labels = tuple[str, ...]
Samples = dict[Labels, float]
Durations = dict[Labels, tuple[list[tuple[str, float]], float]]
"""By labels: cumulative buckets with their bounds, and the sum in seconds."""

_BOUNDS = [f"{bound:g}" for bound in BUCKETS] + ["+Inf"]
# Prometheus' own form of a number: with it, a rule that names a bucket fits every version.
_WRITTEN = [str(bound) for bound in BUCKETS] + ["+Inf"]
_TIMED = {
    "ninelives_recovery_duration_seconds": ("recovery_bucket", "recovery_ms"),
    "ninelives_detection_duration_seconds": ("detection_bucket", "detection_ms"),
}
_IN_MS = {"ninelives_saved_seconds": "saved_ms"}


class Counted(Struct, frozen=True):
    """The store's counters: plain ones, and histograms."""

    samples: dict[str, Samples]
    durations: dict[str, Durations]


def from_zero(name: str, *outer: Iterable[str]) -> Samples:
    """Return zeros for all known values of the outer labels, and of those that are closed sets."""
    return dict.fromkeys(product(*outer, *VALUES.get(name, {}).values()), 0.0)


def counted(counters: Iterable[Counter], agents: Sequence[str]) -> Counted:
    """Return all samples of counters; values of a label that are not declared are kept, too."""
    by_name: defaultdict[str, list[Counter]] = defaultdict(list)
    for counter in counters:
        by_name[counter.name].append(counter)
    samples, durations = {}, {}
    for name, family in FAMILIES.items():
        if name.startswith(OPTIONAL):
            continue
        zeros = from_zero(name, *([agents] if "agent" in family.labels else []))
        if family.type is MetricType.COUNTER:
            stored = _IN_MS.get(name, name.removeprefix("ninelives_"))
            found = _summed(by_name[stored], family.labels, zeros)
            scale = 1000 if name in _IN_MS else 1
            samples[name] = {labels: value / scale for labels, value in found.items()}
        elif family.type is MetricType.HISTOGRAM:
            buckets, milliseconds = (by_name[stored] for stored in _TIMED[name])
            durations[name] = _durations(buckets, milliseconds, family.labels, zeros)
    return Counted(samples, durations)


def _summed(counters: Iterable[Counter], labels: Sequence[str], zeros: Samples) -> Samples:
    """Add up counters by these labels of theirs."""
    found = dict(zeros)
    for one in counters:
        key = tuple(one.labels.get(label, "") for label in labels)
        found[key] = found.get(key, 0.0) + one.value
    return found


def _durations(
    buckets: Sequence[Counter], milliseconds: Iterable[Counter], labels: Sequence[str], zeros: Samples
) -> Durations:
    counts = {
        bound: _summed((one for one in buckets if one.labels.get("le") == bound), labels, zeros)
        for bound in _BOUNDS
    }
    sums = _summed(milliseconds, labels, zeros)
    found: Durations = {}
    for key, total in sums.items():
        cumulative = accumulate(counts[bound].get(key, 0.0) for bound in _BOUNDS)
        found[key] = list(zip(_WRITTEN, cumulative, strict=True)), total / 1000
    return found
