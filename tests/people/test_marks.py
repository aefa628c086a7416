"""Killed exactly at the marks around people's answers: the next life finds what the mark says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.marks import Victim
from tests.crash.stores import bury, scratch
from tests.people import stories
from tests.people.stories import STORIES

HERE = "tests.people.test_marks"


def stage(home: str, story: str, number: str) -> None:
    """Do one stage of a story."""
    stories.play(home, story, int(number), int(number) + 1)


@pytest.mark.parametrize(
    ("story", "number", "words"),
    [
        ("doubted", 2, "the doubt is answered"),
        ("mended", 4, "not escalated"),
        ("mended", 6, "the stop is answered"),
        ("held", 4, "an answer is taken"),
    ],
)
def test_what_a_mark_says_of_the_next_life_is_true(story: str, number: int, words: str) -> None:
    with scratch("sqlite") as home:
        stories.play(str(home), story, 0, number)
        with Victim(words, f"{HERE}:stage", home, story, number) as victim:
            victim.dies()
        bury(Path(home))
        stories.play(str(home), story, number, len(STORIES[story].stages))
        assert stories.judge(str(home), story) == []
