"""`python -m benchmarks.meaning [--seeds 3] [--most N] [--intents FILE | --pairs FILE] [--plot FILE]`.

The embeddings are those of wordllama, whose wheel carries its weights.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.meaning.corpus import SEEN, UNSEEN, Asked, intents, pairs, stream
from benchmarks.meaning.evaluate import Played, bare, upper, verified
from benchmarks.plots import Line, lines
from ninelives.core.model_calls.meaning.choice import Meaning
from ninelives.core.model_calls.meaning.guards import veto
from ninelives.models.embedders import wordllama

THRESHOLDS = (0.7, 0.8, 0.9, 0.95)
MAX_ERRORS = (0.02, 0.05, 0.1)
USD_PER_1000 = 3.25
"""A thousand calls of 500 tokens in and 200 out, at 2.50 and 10 dollars for a million."""


class Sums:
    """Several plays of one kind, added up."""

    def __init__(self, name: str, max_error: float | None) -> None:
        self.name, self.max_error = name, max_error
        self.played: list[Played] = []

    def row(self) -> str:
        """Return a line of the table."""
        calls, hits, wrong, trapped = (
            sum(getattr(one, name) for one in self.played) for name in ("calls", "hits", "wrong", "trapped")
        )
        stated = "" if self.max_error is None else f"{self.max_error:.0%}"
        error, at_most = (f"{wrong / hits:.2%}", f"{upper(wrong, hits):.2%}") if hits else ("", "")
        saved = USD_PER_1000 * hits / calls
        return (
            f"| {self.name} | {stated} | {hits / calls:.1%} | {hits:,} | {wrong} | {error} | {at_most} |"
            f" {trapped} | {saved:.2f} |"
        )


def table(rows: Iterable[Sums]) -> list[str]:
    """Return the rows under their head."""
    head = (
        "| cache | stated bound | hits | served | wrong | wrong of served | 95 % at most"
        " | traps served wrongly | USD saved per 1,000 calls |"
    )
    return [head, "| --- |" + " --: |" * 8, *(one.row() for one in rows)]


def measure(
    asked: list[Asked], embed: Callable[[list[str]], Any], seeds: int, *, guards: bool
) -> tuple[list[Sums], list[Sums]]:
    """Play the questions in several orders; with guards, all traps are among them.

    Without guards there are none: where answers are of few kinds, what differs in a trap is often no matter.
    """
    traps = pairs(*SEEN, *UNSEEN) if guards else []
    orders = [stream(asked, traps, seed) for seed in range(seeds)]
    texts = sorted({one.text for one in orders[0]})
    known = dict(zip(texts, embed(texts), strict=True))
    ours, theirs = list[Sums](), list[Sums]()
    for most in MAX_ERRORS:
        rule = Meaning(embed, max_error=most, guards=guards)
        ours.append(Sums(f"`nl.Meaning`{'' if guards else ', guards=False'}", most))
        for seed, order in enumerate(orders):
            ours[-1].played.append(verified(order, [known[one.text] for one in order], rule, seed))
        print(ours[-1].row(), file=sys.stderr, flush=True)
    for at_least in THRESHOLDS:
        theirs.append(Sums(f"cosine at least {at_least}", None))
        for order in orders:
            theirs[-1].played.append(bare(order, [known[one.text] for one in order], at_least))
        print(theirs[-1].row(), file=sys.stderr, flush=True)
    return ours, theirs


def drawn(ours: list[Sums], theirs: list[Sums]) -> str:
    """Return the plot: hits across, errors up."""

    def points(rows: Iterable[Sums]) -> list[tuple[float, float]]:
        found = [
            (100 * sum(p.hits for p in one.played) / sum(p.calls for p in one.played),
             100 * sum(p.wrong for p in one.played) / max(1, sum(p.hits for p in one.played)))
            for one in rows
        ]  # fmt: skip
        return sorted(point for point in found if point[0])

    given = [("bare threshold", theirs), ("nl.Meaning", ours)]
    kinds = [Line(name, found) for name, rows in given if (found := points(rows))]
    return lines("Wrong answers among those served", "calls served from the cache, %", "wrong, %", kinds)


def guarded() -> list[str]:
    """Return what the guards do to the lists by themselves."""
    rows = ["| list | pairs | let through by the guards |", "| --- | --: | --: |"]
    for name in (*SEEN, *UNSEEN, "paraphrases"):
        found = pairs(name)
        rows.append(f"| `{name}` | {len(found)} | {sum(veto(*pair) is None for pair in found)} |")
    return rows


def paraphrased(path: Path, most: int) -> list[Asked]:
    """Return questions of labelled pairs (JSON: `text_a`, `text_b`, `label`), in groups of one meaning."""
    parent: dict[str, str] = {}

    def root(text: str) -> str:
        while parent.setdefault(text, text) != text:
            text = parent[text]
        return text

    for pair in json.loads(path.read_text()):
        if pair["label"]:
            parent[root(pair["text_a"])] = root(pair["text_b"])
    groups: dict[str, list[str]] = {}
    for text in list(parent):
        groups.setdefault(root(text), []).append(text)
    found = [Asked(text, group) for group, texts in groups.items() if len(texts) >= 4 for text in texts]
    random.Random(1).shuffle(found)
    return found[:most]


def main() -> None:
    """Measure, and print or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.meaning")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--most", type=int, default=1_000_000, help="at most so many questions")
    parser.add_argument("--intents", type=Path, help="lines of intent, tab, question")
    parser.add_argument("--pairs", type=Path, help="labelled pairs in place of intents")
    parser.add_argument("--plot", type=Path, help="write the plot there")
    given = parser.parse_args()
    asked = paraphrased(given.pairs, given.most) if given.pairs else intents(given.intents)
    asked = asked[:: max(1, len(asked) // given.most)]
    for guards in (True, False):
        ours, theirs = measure(asked, wordllama(), given.seeds, guards=guards)
        print("\n".join(["", *table([*ours, *theirs]), ""]))
        if given.plot:
            given.plot.with_suffix(".svg" if guards else ".router.svg").write_text(drawn(ours, theirs))
    print("\n".join(guarded()))


if __name__ == "__main__":
    main()
