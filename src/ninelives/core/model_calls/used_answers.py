"""Cached answers that were given to another wording: what a run that has used one may still do.

A hit by `near="words"` or by meaning may be wrong. The step that declares such a cache says whether its
answers lead to effects (`leads_to_effects=`). If not, the run is refused each fresh effect from then on: by a
label of its taint, so its children and later turns are refused, too. If they do, each approval names them.
Undoing goes on, and what is on record is delivered as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from ninelives.core.errors import Denied
from ninelives.core.model_calls.answered import CachedFrom

CACHED: Final = "cached"
"""The label of runs that have used an answer to another wording from which no effects may follow."""
KNOWN: Final = "cached.known"
"""The same where the step declares that its cached answers may lead to effects."""
_ONE: Final = "cached.answer."
_MOST_NAMED: Final = 3
_EVIDENCE: Final = "cached answers"


def labels(answer: str, taint: Collection[str], *, leads: bool) -> set[str]:
    """Return the labels of a run that uses such an answer; `leads`: effects may follow.

    One says which answer it is, unless the run has such a label: those of its children come on top.
    """
    found = {KNOWN if leads else CACHED}
    return found if _named_by(taint) else found | {f"{_ONE}{answer}"}


def refusal(run: str, step: str | None, own: Sequence[CachedFrom], taint: Iterable[str]) -> Denied:
    """Return the error for an effect of a run that has used an answer which may not lead to one."""
    return Denied(
        "the run rests on an answer that was given to a similar question, and its step says that such answers"
        f" lead to no effects: {_named(own, taint)}",
        run=run,
        step=step,
        remedy="Ask that step with near='exact', or declare leads_to_effects=True on its cache; or let a "
        f"person check the answer, and call nl.declassify('{CACHED}', why=...)",
    )


def evidence(own: Sequence[CachedFrom], taint: Iterable[str]) -> dict[str, str]:
    """Return what an approval says of the cached answers that a run has used; nothing if it has used none."""
    named = _named(own, taint)
    return {_EVIDENCE: named} if named else {}


def _named(own: Sequence[CachedFrom], taint: Iterable[str]) -> str:
    """Return which answers those are: the run's own with their origin, others by their names."""
    found = [str(one) for one in own[-_MOST_NAMED:]]
    if len(own) > _MOST_NAMED:
        found.append(f"{len(own) - _MOST_NAMED} more")
    known = {one.answer for one in own}
    others = [one for one in _named_by(taint) if one not in known]
    found += [f"answer {one}, used by another run or turn" for one in others[:_MOST_NAMED]]
    return "; ".join(found)


def _named_by(taint: Iterable[str]) -> list[str]:
    return sorted(one.removeprefix(_ONE) for one in taint if one.startswith(_ONE))
