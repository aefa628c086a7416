"""Answers by meaning, verified: when the answer to a similar question is served, and when the model is asked.

Never by similarity alone. A cached question stands for another one only if no guard sees that something
differs that counts (numbers, names, negation, order, a word that is another), and if answers of the same
risk, compared with what the model said, were wrong so seldom that the bound is at most `max_error`. Until
then the model is asked and the two answers are compared: the cache begins in the shadow, and goes back there
when the bound rises. Of what it may serve, a share is asked and compared all the same: so it notices change.

The way of verifying is that of vCache (arXiv 2502.03771), with two differences: what is bounded is the share
of wrong answers among those served, not among all calls; and the bound is taken over all cached questions of
like risk, since one question alone is hardly ever compared hundreds of times. Its own comparisons say in
which band of risk it is.

Pure: what was compared, the nearest questions and the draw are passed in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from ninelives.core.errors import UsageError
from ninelives.core.model_calls.meaning.guards import veto
from ninelives.core.model_calls.meaning.record import Comparison, Comparisons, band_of

Vectors = Sequence[Sequence[float]]
Embed = Callable[[list[str]], Vectors | Awaitable[Vectors]]
NEAREST: Final = 5
"""How many of the nearest questions are looked at: a guard may refuse the first ones."""


class Meaning(Struct, frozen=True):
    """Reuse the answer to a question that means the same, once comparisons have shown how often that errs.

    - `embed`: a callable, plain or async, from texts to one vector each.
    - `max_error`: which share of the served answers may be wrong.
    - `same`: whether two answers say the same; equality, if not given. Answers in prose need one.
    - `explore`: which share of what may be served is asked and compared all the same.
    - `at_least`: the cosine from which on questions are compared at all.
    - `guards`: off only where answers are of few kinds, such as which queue a question belongs to: there
      numbers and names may differ and the answer is the same. The bound holds either way.
    - `of`: the argument in which the question is: its last text of three words or more. Not given: the last
      such text of all arguments. Everything else in the arguments has to be equal.
    - `model`: a name for what `embed` does. Another model needs another name: their vectors do not compare.
    """

    embed: Embed
    max_error: float = 0.01
    same: Callable[[Any, Any], Any] | None = None
    explore: float = 0.05
    at_least: float = 0.6
    guards: bool = True
    of: str = ""
    model: str = ""

    def __post_init__(self) -> None:
        if not callable(self.embed):
            raise UsageError(
                f"a meaning's embed={self.embed!r} cannot be called",
                remedy="Give a callable from a list of texts to a list of vectors, see models/embedders.py",
            )
        if self.same is not None and not callable(self.same):
            raise UsageError(
                f"a meaning's same={self.same!r} cannot be called",
                remedy="Give same(one_answer, other_answer)",
            )
        for name, value, low, high in (
            ("max_error", self.max_error, 0.0005, 0.5),
            ("explore", self.explore, 0.001, 1.0),
            ("at_least", self.at_least, 0.0, 1.0),
        ):
            if type(value) not in {int, float} or not low <= value <= high:
                raise UsageError(f"a meaning's {name}={value!r}", remedy=f"Give a share, {low} to {high:g}")


class Near(Struct, frozen=True):
    """A cached question that is near: its entry's id, its text, the cosine."""

    entry: str
    text: str
    similarity: float


class MeaningChoice(Struct, frozen=True):
    """What to do with a question.

    `serve`: give the cached answer of `entry`. Otherwise ask the model and, if there is an entry, compare.
    `why` is "bound" (served), "shadow" (the bound does not permit it yet), "explore" (it does, but this one
    is compared), "risk" (too risky for every band), "guard: ..." or "none". `at_most` is the band's bound.
    """

    serve: bool
    entry: str | None
    similarity: float
    band: int
    risk: float
    at_most: float
    why: str

    def compared(self, right: bool) -> Comparison:
        """Return the comparison to store and to note after the model has answered, if there is an entry.

        If it was right, the entry answers for both questions. If it was wrong, or there is no entry, the new
        answer becomes an entry of its own.
        """
        return Comparison(self.entry or "", round(self.similarity, 4), self.band, right)


def choose(
    rule: Meaning, text: str, nearest: Iterable[Near], record: Comparisons, draw: float
) -> MeaningChoice:
    """Return what to do with a question, given the nearest cached ones and a draw between 0 and 1."""
    best: tuple[float, Near] | None = None
    refused = "none"
    for near in nearest:
        if near.similarity < rule.at_least:
            continue
        reason = veto(text, near.text) if rule.guards else None
        if reason is not None:
            refused = f"guard: {reason}" if refused == "none" else refused
            continue
        risk = record.risk(near.entry, near.similarity)
        if best is None or risk < best[0]:
            best = risk, near
    if best is None:
        return MeaningChoice(False, None, 0.0, -1, 1.0, 1.0, refused)
    risk, near = best
    band = band_of(risk)
    if band < 0:
        return MeaningChoice(False, near.entry, near.similarity, band, risk, 1.0, "risk")
    bound = record.bound(band)
    permitted = bound.permits(rule.max_error)
    explored = draw < rule.explore
    why = "shadow" if not permitted else "explore" if explored else "bound"
    return MeaningChoice(
        permitted and not explored, near.entry, near.similarity, band, risk, bound.at_most, why
    )
