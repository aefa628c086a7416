"""More than 300 attacks on log and store: with an anchor all are found; without, all but those listed.

The list is in docs/audit-log.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from ninelives.core.errors import UsageError
from ninelives.governance.audit_log.verification.verify import verify
from tests.governance.audit_attacks import Scene, attacks, build

_PAGE = Path(__file__).parents[2] / "docs" / "audit-log.md"


def _is_found(scene: Scene, *, with_anchor: bool) -> bool:
    try:
        return bool(verify(scene.store, scene.anchored if with_anchor else ()).findings)
    except UsageError:  # there is no log at all
        return False


def test_each_attack_is_found_with_an_anchor_and_without_but_for_those_listed() -> None:
    scene = build()
    assert verify(scene.store, scene.anchored).findings == []
    found: dict[str, set[bool]] = defaultdict(set)
    missed, count = [], 0
    for family, attack in attacks():
        victim = scene.copied()
        attack(victim)
        count += 1
        if not _is_found(victim, with_anchor=True):
            missed.append(family)
        found[family].add(_is_found(victim, with_anchor=False))
    assert not missed
    assert count >= 300
    listed = re.search(r"<!-- not found without an anchor -->\n(.*?)\n\n", _PAGE.read_text(), re.DOTALL)
    assert listed is not None
    rows = [line.strip("- ").strip() for line in listed[1].splitlines()]
    assert sorted(family for family, answers in found.items() if False in answers) == sorted(rows)
    assert all(len(answers) == 1 for answers in found.values()), found
