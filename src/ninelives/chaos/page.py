"""The report as a page: one file that needs nothing else, no script, no network, and everything escaped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ninelives import __version__
from ninelives.chaos import plots
from ninelives.chaos.campaign import Campaign
from ninelives.chaos.effects import effects
from ninelives.chaos.findings import Finding
from ninelives.chaos.judge import Verdict
from ninelives.chaos.ledger import What
from ninelives.chaos.plots import plain
from ninelives.chaos.screen import last_line, place
from ninelives.chaos.trial import Trial, describe
from ninelives.core.model import Kind
from ninelives.demo.judge import RECOVERY_SECONDS, Number

_MOST_BARS, _MOST_TRIALS = 40, 60
_KINDS = frozenset(Kind)
_STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def page(campaign: Campaign, verdict: Verdict, target: str) -> str:
    """Return the whole page."""
    parts = [
        f"<h1>{plain(target)}</h1>",
        f'<p class="soft">ninelives {plain(__version__)} chaos: {verdict.runs} runs, '
        f"{verdict.faults} faults, {verdict.kills} of them kill -9, {len(verdict.recoveries)} recoveries "
        f"measured; {verdict.replayed} times a recorded step was replayed instead of executed</p>",
        f'<p class="verdict {_mark(verdict.is_met)}">{plain(last_line(verdict, campaign.seconds))}</p>',
        f'<div class="cards">{"".join(map(_card, verdict.numbers))}</div>',
        *_findings(verdict),
        *_plots(campaign, verdict),
        *_timelines(campaign),
        _trials(campaign),
        *_effects(campaign),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>chaos: {plain(target)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _mark(is_met: bool) -> str:
    return "good" if is_met else "bad"


def _card(number: Number) -> str:
    met = "met" if number.is_met else "MISSED"
    return (
        f'<div class="card"><small>{plain(number.name)}</small><b>{plain(number.value)}</b>'
        f'<span class="{_mark(number.is_met)}">{met}</span> '
        f'<span class="soft">target {plain(number.target)}</span>'
        f"<small>{plain(number.note)}</small></div>"
    )


def _findings(verdict: Verdict) -> list[str]:
    if not verdict.findings:
        return []
    return [f"<h2>{len(verdict.findings)} to mend</h2>", *map(_finding, verdict.findings)]


def _finding(finding: Finding) -> str:
    doubt = "" if finding.is_certain else " (perhaps)"
    return (
        f'<div class="finding"><b>{plain(place(finding))}</b> {plain(finding.mistake)}{doubt}'
        f"<pre>{plain(finding.code)}</pre><div>{plain(finding.what)}</div>"
        f"<div><b>Mend:</b> {plain(finding.remedy)}</div></div>"
    )


def _plots(campaign: Campaign, verdict: Verdict) -> list[str]:
    ours = [one.seconds - one.load_seconds for one in verdict.recoveries]
    kills = Counter(
        _step(fault.step) for trial in campaign.trials for fault in trial.faults if fault.kind == "KILL"
    )
    rows = kills.most_common(_MOST_BARS)
    parts = []
    if ours:
        parts += ["<h2>Recovery times</h2>", "<figure>"]
        parts += [plots.histogram(ours, limit=RECOVERY_SECONDS, unit="s")]
        parts += ["<figcaption>from the code being loaded to the first new step</figcaption></figure>"]
    if rows:
        parts += ["<h2>Kills by step</h2>", f"<figure>{plots.bars(rows, of='kills')}</figure>"]
    return parts


def _step(label: str) -> str:
    """Name the step that a kill was at: its body and its records are one."""
    kind, _, rest = label.partition(" ")
    if kind in _KINDS and rest:
        return rest
    return label or "at random"


def _timelines(campaign: Campaign) -> list[str]:
    if not campaign.trials:
        return []
    drawn = "".join(
        f"<figure>{_timeline(trial)}<figcaption>{plain(trial.name)}: {len(trial.lives)} lives, "
        f"{trial.seconds:.2f} s, {plain(trial.state or trial.why)}</figcaption></figure>"
        for trial in campaign.trials[:_MOST_TRIALS]
    )
    return ["<h2>Timelines</h2>", drawn]


def _timeline(trial: Trial) -> str:
    spans = [
        plots.Span(
            life.began_at - trial.began_at,
            life.ended_at - trial.began_at,
            "ended" if life.code == 0 else "died",
            f"life {life.number}: {life.how}",
        )
        for life in trial.lives
    ]
    marks = [plots.Mark(line.at - trial.began_at, line.kind, describe(line)) for line in trial.faults]
    return plots.timeline(spans, marks, trial.seconds)


def _trials(campaign: Campaign) -> str:
    rows = "".join(
        f'<tr><td>{plain(trial.name)}</td><td class="n">{len(trial.lives)}</td>'
        f'<td class="n">{len(trial.faults)}</td><td class="n">{trial.seconds:.2f}</td>'
        f"<td>{plain(trial.why or trial.state)}</td></tr>"
        for trial in (*campaign.calm, *campaign.trials)
    )
    return (
        "<h2>Runs</h2><table><tr><th>what befell it</th><th>lives</th><th>faults</th><th>s</th><th>end</th>"
        f"</tr>{rows}</table>"
    )


def _effects(campaign: Campaign) -> list[str]:
    seen = Counter((one.kind, one.target, one.is_inside) for one in effects(campaign.calm[0]))
    steps = sum(line.what is What.BEGIN for line in campaign.calm[0].lines)
    if not seen:
        return [f'<p class="soft">Without faults: {steps} bodies executed, no effects seen.</p>']
    rows = "".join(
        f"<tr><td>{plain(kind)}</td><td>{plain(target)}</td><td>{'in a step' if inside else 'outside'}</td>"
        f'<td class="n">{count}</td></tr>'
        for (kind, target, inside), count in seen.most_common(_MOST_BARS)
    )
    return [
        f"<h2>Effects without faults</h2><p class='soft'>{steps} bodies were executed.</p>",
        f"<table><tr><th>kind</th><th>what</th><th>where</th><th>times</th></tr>{rows}</table>",
    ]
