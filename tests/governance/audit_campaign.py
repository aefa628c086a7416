"""`python -m tests.governance.audit_campaign`: all attacks on log and store, and which of them are found."""

from __future__ import annotations

import sys
from collections import defaultdict

from msgspec import Struct

from ninelives.core.errors import UsageError
from ninelives.governance.audit_log.verification.verify import verify
from tests.governance.audit_attacks import Scene, attacks, build


class Attacked(Struct):
    """How many attacks there were, which families were missed with an anchor, and the answers without."""

    count: int
    missed: list[str]
    found: dict[str, set[bool]]

    @property
    def unfound(self) -> list[str]:
        """The families that are not found without an anchor."""
        return sorted(family for family, answers in self.found.items() if False in answers)


def campaign() -> Attacked:
    """Make each attack on a copy of a scene, and look for it, with and without an anchor."""
    scene = build()
    assert verify(scene.store, scene.anchored).findings == [], "nothing was attacked yet"
    made = Attacked(0, [], defaultdict(set))
    for family, attack in attacks():
        victim = scene.copied()
        attack(victim)
        made.count += 1
        if not _is_found(victim, with_anchor=True):
            made.missed.append(family)
        made.found[family].add(_is_found(victim, with_anchor=False))
    return made


def _is_found(scene: Scene, *, with_anchor: bool) -> bool:
    try:
        return bool(verify(scene.store, scene.anchored if with_anchor else ()).findings)
    except UsageError:  # there is no log at all
        return False


def main() -> int:
    """Print what was found; exit with 1 if an attack is missed with an anchor."""
    made = campaign()
    for family in made.unfound:
        print(f"not found without an anchor: {family}")
    print(
        f"{made.count:,} attacks of {len(made.found)} kinds: {len(made.missed)} missed with an anchor; "
        f"{len(made.unfound)} kinds are not found without one"
    )
    return 1 if made.missed or made.count < 300 else 0


if __name__ == "__main__":
    sys.exit(main())
