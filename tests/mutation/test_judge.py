"""The judge of mutants: what survives is known by its change, and each has its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.__main__ import faults
from tests.mutation.page import page
from tests.mutation.rooms import ROOMS, Mutant, Result, mutant_of
from tests.mutation.survivors import outdated, read_explained, stanza

DIFF = """\
# ninelives.core.journal.replay.xǁReplayǁtake__mutmut_3: survived
--- src/ninelives/core/journal/replay.py
+++ src/ninelives/core/journal/replay.py
@@ -1,3 +1,3 @@
 def take(self):
-    self.left -= 1
+    self.left = 1
     return None
"""
TAKE = Mutant("Replay.take", "self.left -= 1", "self.left = 1")


def result(mutants: int, *survivors: Mutant) -> Result:
    return Result(ROOMS[0], mutants, list(survivors), 60.0, "2026-01-01", "mutmut 1")


def test_a_mutant_is_known_by_its_change() -> None:
    assert mutant_of("ninelives.core.journal.replay.xǁReplayǁtake__mutmut_3", DIFF) == TAKE
    assert mutant_of("ninelives.core.rules.dedup.x__is_past__mutmut_12", DIFF).function == "_is_past"


def test_one_in_ten_may_live_and_only_with_a_reason() -> None:
    why = {ROOMS[0].name: {TAKE: "because"}}
    assert list(faults([result(10, TAKE)], why)) == []
    assert list(faults([result(9, TAKE)], why)) == ["8 of 9 mutants were killed: fewer than 90%"]
    (unknown,) = faults([result(10, TAKE)], {})
    assert stanza(result(10), TAKE) in unknown


def test_a_reason_for_what_is_dead_is_outdated() -> None:
    why = {ROOMS[0].name: {TAKE: "because"}}
    assert list(outdated(result(10), why)) == [TAKE]
    assert list(outdated(result(10, TAKE), why)) == []


def test_the_page_shows_every_survivor_with_its_reason() -> None:
    shown = page([result(10, TAKE), result(20)], {ROOMS[0].name: {TAKE: "It is the same."}})
    assert "**29 of 30 mutants killed (96.7%)**" in shown
    assert f"| `{ROOMS[1].path}` | {ROOMS[1].holds} | not run | | |" in shown
    assert "- It is the same.\n  - `Replay.take`: `self.left -= 1` → `self.left = 1`" in shown


def test_what_the_list_explains_is_in_a_room_and_has_a_reason(tmp_path: Path) -> None:
    assert set(read_explained()) <= {room.name for room in ROOMS}
    listed = tmp_path / "survivors.toml"
    listed.write_text(stanza(result(1), TAKE))
    with pytest.raises(ValueError, match="say why this survives"):
        read_explained(listed)
    listed.write_text(stanza(result(1), TAKE).replace('why = ""', 'why = "because"'))
    assert read_explained(listed) == {ROOMS[0].name: {TAKE: "because"}}
