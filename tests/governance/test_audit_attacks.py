"""More than 300 attacks on log and store: with an anchor all are found; without, all but those listed.

The list is in docs/audit-log.md.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.governance.audit_campaign import campaign

_PAGE = Path(__file__).parents[2] / "docs" / "audit-log.md"


def test_each_attack_is_found_with_an_anchor_and_without_but_for_those_listed() -> None:
    made = campaign()
    assert not made.missed
    assert made.count >= 300
    listed = re.search(r"<!-- not found without an anchor -->\n(.*?)\n\n", _PAGE.read_text(), re.DOTALL)
    assert listed is not None
    rows = [line.strip("- ").strip() for line in listed[1].splitlines()]
    assert made.unfound == sorted(rows)
    assert all(len(answers) == 1 for answers in made.found.values()), made.found
