"""No edit of an agent's source repeats an effect or forgets a start, and `check` says what will be."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from ninelives.core.model.run import State
from tests.edits.campaign import Red, red_of, shrunk
from tests.edits.editor import EDITS
from tests.edits.judge import judge
from tests.edits.lives import At
from tests.edits.pairs import pair_of, perform
from tests.edits.source import source_of

pytestmark = pytest.mark.usefixtures("declarations")
PAIRS, PARTS = 2_000, 8


@pytest.mark.parametrize("part", range(PARTS))
def test_no_edit_repeats_an_effect_or_forgets_a_start_and_check_is_right(part: int) -> None:
    fates: Counter[str] = Counter()
    turns = 0
    for seed in range(part, PAIRS, PARTS):
        history = perform(pair_of(seed))
        violations = judge(history)
        if violations:
            pytest.fail(str(shrunk(Red(history, violations))), pytrace=False)
        for life in history.lives[1:]:
            fates["diverged" if life.diverged else str(life.state)] += 1
            turns += life.stand.turn > 0
    assert turns > PAIRS / PARTS / 10
    assert fates["diverged"] > PAIRS / PARTS / 10
    assert fates[State.COMPLETED] > PAIRS / PARTS / 3


def test_every_edit_kill_and_construct_is_among_the_pairs() -> None:
    pairs = [pair_of(seed) for seed in range(PAIRS)]
    assert {name for pair in pairs for version in pair.versions for name in version.edits} == set(EDITS)
    assert {version.kill.at for pair in pairs for version in pair.versions} == set(get_args(At))
    text = "\n".join(source_of(version.program) for pair in pairs[:300] for version in pair.versions)
    for said in (
        *("asyncio.gather(", "nl.gather(", "asyncio.TaskGroup(", "asyncio.create_task(", "as_completed("),
        *("nl.map(", "nl.branch(", "nl.sleep(", "nl.receive(", "nl.spawn(", "nl.patched(", "forgets=["),
        *(
            "nl.next_turn(",
            "aliases=[",
            "key=",
            "id=",
            "resumable=False",
            "reads_only=True",
            "verify=",
            "@nl.decision",
        ),
    ):
        assert said in text, said


def test_a_red_pair_prints_sources_ledger_and_command(monkeypatch: pytest.MonkeyPatch) -> None:
    from ninelives.core.journal.replay import Replay

    monkeypatch.setattr(Replay, "take", lambda *_: None)
    monkeypatch.setattr(Replay, "peek", lambda *_: None)
    text = str(next(red for seed in range(50) if (red := red_of(seed)) is not None))
    for said in (
        "python -m tests.edits --pair ",
        "WRONG: ",
        "async def agent() -> dict[str, str]:",
        "life 2",
    ):
        assert said in text
