"""Render the report as one self-contained HTML file: no script, no network, all text escaped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ninelives import __version__
from ninelives.chaos.campaign.campaign import Campaign
from ninelives.chaos.findings.effects import effects
from ninelives.chaos.findings.finding import Finding
from ninelives.chaos.findings.metrics import RECOVERY_SECONDS, Number, Report, percentile
from ninelives.chaos.ledger import LedgerLine, What
from ninelives.chaos.protocol import FaultMoment
from ninelives.chaos.report import plots
from ninelives.chaos.report.plots import Bar, Mark, plain
from ninelives.chaos.report.terminal import last_line, location
from ninelives.chaos.report.timelines import timelines
from ninelives.core.model.run import Kind

_MOST_BARS, _MOST_ROWS = 40, 20
_KINDS = frozenset(Kind)
_AT_STORE = frozenset({FaultMoment.BEFORE.name, FaultMoment.AFTER.name})
_STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def page(campaign: Campaign, verdict: Report, target: str) -> str:
    """Return the whole page."""
    parts = [
        f"<header><h1>{plain(target)}</h1>",
        f'<p class="soft">ninelives {plain(__version__)} chaos: {verdict.runs} runs, '
        f"{verdict.faults} faults, {verdict.kills} of them kill -9, {len(verdict.recoveries)} recoveries "
        f"measured; recorded steps were replayed instead of executed {verdict.replayed} times</p>",
        f'<p class="verdict {_mark(verdict.is_met)}">{plain(last_line(verdict, campaign.seconds))}</p>',
        f'</header><main><ul class="cards">{"".join(map(_card, verdict.numbers))}</ul>',
        *_findings(verdict),
        *_left_out(verdict),
        *_recoveries(verdict),
        *_kills(campaign),
        *timelines(campaign.trials, campaign.calm[0].state),
        _trials(campaign),
        *_effects(campaign),
        "</main>",
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
    met, missed = ("✓ met", "") if number.is_met else ("✗ MISSED", " missed")
    return (
        f'<li class="card{missed}"><small>{plain(number.name)}</small><b>{plain(number.value)}</b>'
        f'<span class="is {_mark(number.is_met)}">{met}</span>'
        f"<small>target {plain(number.target)}</small><small>{plain(number.note)}</small></li>"
    )


def _findings(verdict: Report) -> list[str]:
    certain, all_of_them = len(verdict.certain), len(verdict.findings)
    if not all_of_them:
        return []
    perhaps = all_of_them - certain
    heads = [f"{certain} to fix"] * bool(certain) + [f"{perhaps} to check"] * bool(perhaps)
    return [f"<h2>{', '.join(heads)}</h2>", *map(_finding, verdict.findings)]


def _finding(finding: Finding) -> str:
    doubt, perhaps = ("", "") if finding.is_certain else (" (perhaps)", " perhaps")
    return (
        f'<section class="finding{perhaps}"><h3>{plain(finding.mistake)}{doubt}</h3>'
        f'<div class="place">{plain(location(finding))}</div>'
        f"<pre><span>{finding.line}  </span>{plain(finding.code)}</pre><p>{plain(finding.what)}</p>"
        f"<p><b>Fix:</b> {plain(finding.remedy)}</p></section>"
    )


def _left_out(verdict: Report) -> list[str]:
    """Return what was left out or shortened, and how the run ends without faults."""
    notes = (
        ("Left out, out of time:", verdict.left_out),
        ("Shortened to fit --seconds:", verdict.shortened),
        ("The run fails without faults too, so failing is its expected result:", (verdict.failure,)),
        ("Why:", (verdict.error,)),
    )
    return [
        f'<p class="soft"><b>{what}</b> {plain("; ".join(dict.fromkeys(names)))}</p>'
        for what, names in notes
        if any(names)
    ]


def _recoveries(verdict: Report) -> list[str]:
    ours = [one.seconds - one.load_seconds for one in verdict.recoveries]
    if not ours:
        return []
    middle, late = percentile(ours, 0.5), percentile(ours, 0.99)
    lines = [
        Mark(middle, "middle", f"median {middle:.3f} s"),
        Mark(late, "late", f"p99 {late:.3f} s"),
        Mark(RECOVERY_SECONDS, "target", f"target {RECOVERY_SECONDS:g} s"),
    ]
    summary = f"{len(ours)} recoveries: median {middle:.3f} s, p99 {late:.3f} s, longest {max(ours):.3f} s"
    return [
        f"<h2>Recovery times</h2><figure>{plots.histogram(ours, lines, unit='s', label=summary)}",
        f"<figcaption>From the code being loaded to the first new step. {plain(summary)}"
        "</figcaption></figure>",
        '<ul class="key"><li><i class="line" style="background:var(--ink)"></i>median</li>'
        '<li><i class="line" style="background:var(--warm)"></i>p99</li>'
        f'<li><i class="line" style="background:var(--bad)"></i>target {RECOVERY_SECONDS:g} s'
        f"{'' if max(ours) * 1.05 >= RECOVERY_SECONDS else ', beyond the right edge'}</li></ul>",
    ]


def _kills(campaign: Campaign) -> list[str]:
    found = [fault for trial in campaign.trials for fault in trial.faults if fault.kind == "KILL"]
    kills = Counter(map(_step, found))
    rows = [Bar(name, count, kind) for (name, kind), count in kills.most_common(_MOST_BARS)]
    if not rows:
        return []
    rest = len(kills) - len(rows)
    more = f'<p class="soft">and {rest} more with fewer kills</p>' if rest else ""
    return [
        '<h2>Kills by step</h2><ul class="key">'
        '<li><i style="background:var(--blue)"></i>at a step: its body or its records</li>'
        '<li><i style="background:var(--pale)"></i>at another store call</li>'
        '<li><i style="background:var(--warm)"></i>from outside, at a random time</li></ul>',
        plots.bars(rows, of="kills", by="where"),
        more,
    ]


def _step(fault: LedgerLine) -> tuple[str, str]:
    """Return the step or store call that a kill hit, and its CSS class.

    A kill in a step's body and one at its records count as the same step.
    """
    kind, _, rest = fault.step.partition(" ")
    if kind in _KINDS and rest:
        return rest, "step"
    if not fault.step:
        return "at random", "random"
    return fault.step, "store" if fault.target in _AT_STORE else "step"


def _trials(campaign: Campaign) -> str:
    rows = "".join(
        f'<tr><td>{plain(trial.name)}</td><td class="n">{len(trial.lives)}</td>'
        f'<td class="n">{len(trial.faults)}</td><td class="n">{trial.seconds:.2f}</td>'
        f"<td>{plain(trial.why or trial.state)}</td></tr>"
        for trial in (*campaign.calm, *campaign.trials)
    )
    runs = len(campaign.calm) + len(campaign.trials)
    names = _heads(
        ("faults injected", ""), ("processes", "n"), ("faults", "n"), ("seconds", "n"), ("result", "")
    )
    table = f"<table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>"
    if runs > _MOST_ROWS:
        table = f"<details><summary>all {runs} runs</summary>{table}</details>"
    return f"<h2>Runs</h2>{table}"


def _heads(*names: tuple[str, str]) -> str:
    return "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in names)


def _effects(campaign: Campaign) -> list[str]:
    seen = Counter((one.kind, one.target, one.is_inside) for one in effects(campaign.calm[0]))
    steps = sum(line.what is What.BEGIN for line in campaign.calm[0].lines)
    if not seen:
        return [f'<p class="soft">Without faults: {steps} step bodies executed, no effects seen.</p>']
    rows = "".join(
        f"<tr><td>{plain(kind)}</td><td>{plain(target)}</td><td>{'in a step' if inside else 'outside'}</td>"
        f'<td class="n">{count}</td></tr>'
        for (kind, target, inside), count in seen.most_common(_MOST_BARS)
    )
    return [
        f"<h2>Effects without faults</h2><p class='soft'>{steps} step bodies were executed.</p>",
        f"<table><thead><tr>{_heads(('kind', ''), ('what', ''), ('where', ''), ('times', 'n'))}</tr></thead>"
        f"<tbody>{rows}</tbody></table>",
    ]
