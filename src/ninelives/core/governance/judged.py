"""What a step's records keep of the verdict on its call.

The first record that a step writes says how its call was judged: an intent, if one is written before the
body, else the outcome. So no verdict costs a commit of its own, and a replay needs no policy: it delivers
what is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import Raw, Struct

from ninelives.core.governance.accounts import Reserve, Settle
from ninelives.core.governance.verdicts import Allow, Ask, Deny, Judgement, Rewrite
from ninelives.core.secret import masked_text

_WHY_CHARACTERS: Final = 500
LETTERS: Final = MappingProxyType({Allow: "a", Deny: "d", Ask: "q", Rewrite: "r"})
"""The letter that stands for each verdict."""
_ALLOWED: Final = LETTERS[Allow]
WORDS: Final = MappingProxyType({"a": "allowed", "d": "denied", "q": "asked", "r": "rewritten"})
"""The verdicts in words, by their letters."""


class Judged(Struct, frozen=True, omit_defaults=True):
    """How a call was judged: the verdict's letter, the policy's digest, the rules that led to it, and why.

    `args` are the arguments that a policy rewrote, encoded: the body got these in place of the call's own.
    `held` are the amounts that the start reserved, by account and meter.
    """

    v: str
    p: str = ""
    r: tuple[str, ...] = ()
    why: str = ""
    args: dict[str, Raw] = {}
    held: dict[str, dict[str, int]] = {}

    def __str__(self) -> str:
        by = f" by {'rule' if len(self.r) == 1 else 'rules'} {', '.join(self.r)}" if self.r else ""
        why = f": {self.why}" if self.why else ""
        return f"{WORDS.get(self.v, self.v)}{by} of policy {self.p[:16] or '?'}{why}"


def judged(
    judgement: Judgement, *, args: Mapping[str, bytes] | None = None, reserves: Sequence[Reserve] = ()
) -> Judged:
    """Return what a step's records keep of a judgement, and of what its start reserves."""
    verdict = judgement.verdict
    if type(verdict) is Allow and not verdict.note and not args and not reserves:  # the hot path
        return Judged(_ALLOWED, judgement.policy, judgement.rules)
    why = verdict.note if isinstance(verdict, Allow) else verdict.why
    return Judged(
        v=LETTERS[type(verdict)],
        p=judgement.policy,
        r=judgement.rules,
        why=masked_text(why)[:_WHY_CHARACTERS],
        args={name: Raw(data) for name, data in (args or {}).items()},
        held={one.account: one.amounts for one in reserves},
    )


def held_by(found: Judged | None) -> tuple[Reserve, ...]:
    """Return what a recorded start reserved."""
    return tuple(Reserve(account, amounts) for account, amounts in found.held.items()) if found else ()


def presumed(reserves: Sequence[Reserve]) -> tuple[Settle, ...]:
    """Return how reservations are settled when it is unknown what was spent: as spent in full."""
    return tuple(Settle(one.account, one.amounts, one.amounts) for one in reserves)


def released(reserves: Sequence[Reserve]) -> tuple[Settle, ...]:
    """Return how reservations are settled when nothing was spent."""
    return tuple(Settle(one.account, one.amounts, {}) for one in reserves)
