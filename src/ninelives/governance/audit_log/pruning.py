"""What is pruned while the audit log is on: only what is in it, and not before an entry says so."""

from __future__ import annotations

from hashlib import sha256

import msgspec
from msgspec import Struct

from ninelives.governance.audit_log.entries import append
from ninelives.governance.audit_log.follower import Followable, catch_up, logged_before_ms

PRUNED = "pruned"


class Cutoff(Struct, frozen=True, kw_only=True):
    """Up to which moments of their ends the journals of runs, and their rows, are removed; by agent too."""

    ended_before_ms: int = 0
    forget_before_ms: int = 0
    agents: dict[str, int] = {}

    def journal_of(self, agent: str) -> int:
        """Return before which moment a run of an agent must have ended, for its journal to be removed."""
        return max(self.agents.get(agent, self.ended_before_ms), self.forget_before_ms)


def permitted(store: Followable, wanted: Cutoff) -> Cutoff:
    """Return what may be pruned, after logging it: nothing that ended later than the log is sure to reach.

    Follows the journals first. Returns what is wanted if the log is off. Raises LeaseLost, StoreUnavailable,
    Corrupt: then nothing may be pruned.
    """
    catch_up(store)
    limit_ms = logged_before_ms(store)
    if limit_ms is None:
        return wanted
    cutoff = Cutoff(
        ended_before_ms=min(wanted.ended_before_ms, limit_ms),
        forget_before_ms=min(wanted.forget_before_ms, limit_ms),
        agents={agent: min(before_ms, limit_ms) for agent, before_ms in sorted(wanted.agents.items())},
    )
    facts = msgspec.to_builtins(cutoff)
    # CRASH: an entry for what was not pruned yet; it permits no more than was wanted.
    append(store, PRUNED, id=f"pruned/{sha256(msgspec.json.encode(facts)).hexdigest()[:32]}", **facts)
    return cutoff
