"""The lives of each run in time: what was loaded, what was replayed, what was new, and what befell them."""

from __future__ import annotations

from collections.abc import Sequence

from ninelives.chaos.findings.metrics import is_new
from ninelives.chaos.ledger import What
from ninelives.chaos.report.plots import Mark, Span, plain, timeline
from ninelives.chaos.trial.trial import Trial, TrialLife, describe

_OPEN, _MOST, _ROWS = 12, 150, 4
_KEY = (
    '<ul class="key"><li><i style="background:var(--pale)"></i>code is loaded</li>'
    '<li><i style="background:var(--blue);opacity:.45"></i>recovery: what is recorded is replayed</li>'
    '<li><i style="background:var(--blue)"></i>new work</li>'
    '<li><i style="background:var(--good)"></i>new work, to the end</li>'
    '<li><i style="background:var(--bad)"></i>new work, to another end, or to none</li>'
    '<li><i class="line" style="background:var(--bad)"></i>kill -9</li>'
    '<li><i class="line" style="background:var(--warm)"></i>another fault</li></ul>'
)


def timelines(trials: Sequence[Trial], end: str) -> list[str]:
    """Draw the runs, those first that did not come to their `end`; of many, most are folded away."""
    if not trials:
        return []
    ordered = sorted(trials, key=lambda trial: not trial.why and trial.state == end)
    drawn = [_figure(trial, end) for trial in ordered[:_MOST]]
    parts = ["<h2>Timelines</h2>", _KEY, *drawn[:_OPEN]]
    if drawn[_OPEN:]:
        parts += [f"<details><summary>{len(drawn) - _OPEN} more timelines</summary>", *drawn[_OPEN:]]
        parts += ["</details>"]
    if len(ordered) > _MOST:
        parts += [f'<p class="soft">{len(ordered) - _MOST} more runs are not drawn.</p>']
    return parts


def _figure(trial: Trial, end: str) -> str:
    lives, came_to = len(trial.lives), trial.why or trial.state
    told = f"{trial.name}: {lives} {'life' if lives == 1 else 'lives'}, {trial.seconds:.2f} s, {came_to}"
    drawn = _drawn(trial, told, is_good=not trial.why and trial.state == end)
    return f"<figure>{drawn}<figcaption>{plain(told)}</figcaption></figure>"


def _drawn(trial: Trial, label: str, *, is_good: bool) -> str:
    ready: dict[int, float] = {}
    new: dict[int, float] = {}
    for line in trial.lines:
        if line.what is What.READY:
            ready.setdefault(line.life, line.at)
        elif is_new(line.what, line.data):
            new.setdefault(line.life, line.at)
    spans = [
        span
        for life in trial.lives
        for span in _spans(life, trial.began_at, ready.get(life.number), new.get(life.number), is_good)
    ]
    marks = [
        Mark(line.at - trial.began_at, line.kind, describe(line), _row(line.data.get("life", line.life)))
        for line in trial.faults
    ]
    return timeline(spans, marks, trial.seconds, label=label)


def _spans(
    life: TrialLife, since: float, ready: float | None, new: float | None, is_good: bool
) -> list[Span]:
    """Take a life apart: until its code was loaded, until it did something new, until its end."""
    end = life.ended_at
    stops = [life.began_at, end if ready is None else ready, end if new is None else new, end]
    ended = "work ended" if is_good else "work lost"
    kinds = ("load", "back", ended if life.code == 0 else "work")
    title = f"life {life.number}: {life.how}"
    return [
        Span(_row(life.number) or 0, start - since, stop - since, kind, title)
        for kind, start, stop in zip(kinds, stops, stops[1:], strict=False)
        if stop > start
    ]


def _row(life: int) -> int | None:
    """Tell where a life is drawn; what comes from none of them goes through all."""
    return (life - 1) % _ROWS if life else None
