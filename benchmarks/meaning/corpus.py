"""What is asked: questions with the answer each one should get.

A file of intents has an intent and a question in each line, with a tab between. Two questions of one intent
get the same answer. What decision 45 reports was measured on CLINC150 (Larson et al., EMNLP 2019,
https://aclanthology.org/D19-1131), its validation and test questions; the bands of risk were set on the
others. It is not part of this project: give a file of your own. Without one, `tests/cache/intents.json` is
used: a few sentences of each intent, said with and without what people put around them.

Traps are pairs of questions that are near and ask for different things.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

LISTS = Path(__file__).parents[2] / "tests" / "cache"
SEEN = ("traps_seen", "traps_unseen", "traps_meaning_seen")
AROUND = (
    "{}",
    "hi there, {}",
    "good morning! {}, if you can",
    "i was wondering: {}",
    "{}, and be quick about it",
    "my friend asks this: {}",
    "ok so {} you know",
    "{} for me",
    "can you help? {}",
    "one more thing, {}",
    "listen, {}, would you",
    "so basically {}",
)
"""What people put around a question."""
UNSEEN = ("traps_meaning_unseen",)
"""These were written after the guards, and changed nothing in them."""


class Asked(NamedTuple):
    """A question, the answer it should get, and whether it is one of a trap."""

    text: str
    answer: str
    is_trap: bool = False


def intents(path: Path | None = None) -> list[Asked]:
    """Return the questions of a file, else those of the tests."""
    if path is not None:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [Asked(text, intent) for intent, text in (line.split("\t") for line in lines)]
    found = json.loads((LISTS / "intents.json").read_text(encoding="utf-8"))
    return [
        Asked(around.format(sentence), intent)
        for around in AROUND
        for intent, sentences in found.items()
        for sentence in sentences
    ]


def pairs(*names: str) -> list[tuple[str, str]]:
    """Return pairs of questions of the tests' lists."""
    return [tuple(pair) for name in names for pair in json.loads((LISTS / f"{name}.json").read_text())]


def stream(questions: Sequence[Asked], traps: Sequence[tuple[str, str]], seed: int) -> list[Asked]:
    """Return all in random order, the first question of each trap before its second one."""
    draws = random.Random(seed)
    placed = [(draws.random(), one) for one in questions]
    for at, (first, second) in enumerate(traps):
        here, there = sorted((draws.random(), draws.random()))
        placed.append((here, Asked(first, f"trap {at} first", is_trap=True)))
        placed.append((there, Asked(second, f"trap {at} second", is_trap=True)))
    return [one for _, one in sorted(placed, key=lambda each: each[0])]
