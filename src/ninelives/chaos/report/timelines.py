"""Draw each run's processes in time: loading code, replaying, new work, and the injected faults."""

from __future__ import annotations

from collections.abc import Sequence

from ninelives.chaos.ledger import What
from ninelives.chaos.report.plots import Mark, Span, plain, timeline
from ninelives.chaos.trial.trial import Trial, TrialLife, describe

_OPEN, _MOST, _ROWS = 12, 150, 4
_KEY = (
    '<ul class="key"><li><i style="background:var(--pale)"></i>loading the code</li>'
    '<li><i style="background:var(--blue);opacity:.45"></i>recovery: replaying recorded steps</li>'
    '<li><i style="background:var(--blue)"></i>new work</li>'
    '<li><i style="background:var(--good)"></i>new work, run ended as expected</li>'
    '<li><i style="background:var(--bad)"></i>new work, run ended otherwise or not at all</li>'
    '<li><i class="line" style="background:var(--bad)"></i>kill -9</li>'
    '<li><i class="line" style="background:var(--warm)"></i>another fault</li></ul>'
)


def timelines(trials: Sequence[Trial], end: str) -> list[str]:
    """Draw the runs; those that did not reach the state `end` come first. Long lists are folded."""
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
    count, result = len(trial.lives), trial.why or trial.state
    processes = "1 process" if count == 1 else f"{count} processes"
    caption = f"{trial.name}: {processes}, {trial.seconds:.2f} s, {result}"
    drawn = _drawn(trial, caption, is_good=not trial.why and trial.state == end)
    return f"<figure>{drawn}<figcaption>{plain(caption)}</figcaption></figure>"


def _drawn(trial: Trial, label: str, *, is_good: bool) -> str:
    ready: dict[int, float] = {}
    new: dict[int, float] = {}
    for line in trial.lines:
        if line.what is What.READY:
            ready.setdefault(line.life, line.at)
        elif line.is_new:
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
    """Split a process's time: until its code was loaded, until its first new work, until its end."""
    end = life.ended_at
    stops = [life.began_at, end if ready is None else ready, end if new is None else new, end]
    ended = "work ended" if is_good else "work lost"
    kinds = ("load", "back", ended if life.code == 0 else "work")
    title = f"process {life.number}: {life.how}"
    return [
        Span(_row(life.number) or 0, start - since, stop - since, kind, title)
        for kind, start, stop in zip(kinds, stops, stops[1:], strict=False)
        if stop > start
    ]


def _row(life: int) -> int | None:
    """Return the row of a process; None for 0, which marks events of no process: they cross all rows."""
    return (life - 1) % _ROWS if life else None
