"""How a model call was answered: recorded with its outcome, for people and for sums.

It is no part of a call's fingerprint, and replay reads nothing of it: what a step declares of hedging and
caching may change between two lives of a run.
"""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from ninelives.core.model_calls.declarations import EXACT
from ninelives.core.step_ids import step_text
from ninelives.core.values.token_usage import Usage


class CachedFrom(Struct, frozen=True, omit_defaults=True):
    """Where a cached answer came from: the step that recorded it, and when; `answer` is its name, cut.

    `arguments` are those of then, cut, if they were others. `usage` is what it cost then.
    """

    run: str
    step: str
    at_ms: int
    answer: str = ""
    arguments: str = ""
    usage: Usage | None = None

    def __str__(self) -> str:
        other = f", for {self.arguments}" if self.arguments else ""
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC)
        of = f"of {step_text(self.step)} in run {self.run!r}, {at:%Y-%m-%d %H:%M}Z{other}"
        return f"answer {self.answer} {of}"


class Answered(Struct, frozen=True, omit_defaults=True):
    """How a call was answered.

    `by` is the way that answered; empty if none did. `ways` is how many requests were sent, in all attempts.
    `hedged_ms` is how long after the first request the second one was sent because no answer had come.
    `lost` is how many requests were cancelled because another answered first. `failed` are the errors of the
    ways that did not answer, the latest. `cache` is how the cache answered ("exact", "words", "meaning"), and
    `origin` from where: then nothing was sent.
    """

    by: str = ""
    ways: int = 1
    hedged_ms: int | None = None
    lost: int = 0
    failed: tuple[str, ...] = ()
    cache: str = ""
    origin: CachedFrom | None = None

    @property
    def is_of_another_wording(self) -> bool:
        """Whether it is a cached answer that was given to other arguments."""
        return bool(self.cache) and self.cache != EXACT

    def said(self, step: str) -> str:
        """Return it in words; empty if a step of this name was answered as if it declared nothing of it."""
        found = []
        if self.cache:
            found.append(f"from the cache ({self.cache}): {self.origin}")
        elif self.by not in ("", step):
            found.append(f"by {self.by}")
        if self.ways > 1:
            found.append(f"{self.ways} requests")
        if self.hedged_ms is not None:
            found.append(f"a second one after {self.hedged_ms:,} ms")
        if self.lost:
            found.append(f"{self.lost} cancelled")
        return ", ".join([*found, *self.failed])
