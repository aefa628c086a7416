"""Effects that were there once more when their step was executed once more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec import structs

from ninelives.chaos.campaign.campaign import Campaign
from ninelives.chaos.campaign.comparison import asked_otherwise, differing_files, repeated_outside
from ninelives.chaos.findings.effects import (
    DeclaredStep,
    Effect,
    declarations,
    effects,
    executions,
    names,
    opaque_connections,
    surplus,
)
from ninelives.chaos.findings.finding import Finding, Mistake, finding, grouped, the_run, times
from ninelives.chaos.ledger import LedgerLine, What
from ninelives.chaos.trial.trial import Trial
from ninelives.chaos.trial.work_tree import Content
from ninelives.core.step_ids import step_text


def repeated(campaign: Campaign) -> Iterable[Finding]:
    """Find the steps whose effects were repeated; of each place, what is certain before what is not."""
    found: dict[str, Finding] = {}
    # What had other arguments when it was executed again has another mistake, which is told of already.
    diverged = {step_text(step) for _, step in grouped(campaign, What.DIVERGED)}
    diverged |= {step_text(step) for trial in campaign.trials for step in asked_otherwise(trial)}
    for trial in campaign.trials:
        for look in (_requests, _files, _outside_files, _databases, _opaque):
            for one in look(campaign, trial):
                place = f"{one.file}:{one.line}"
                is_better = one.is_certain and place in found and not found[place].is_certain
                if one.step not in diverged and (place not in found or is_better):
                    found[place] = one
    return found.values()


def _requests(campaign: Campaign, trial: Trial) -> Iterable[Finding]:
    declared, named = declarations(trial), names(trial)
    for same, _ in surplus(campaign.calm, trial):
        first = next((one for one in same if not one.is_keyed), same[0])
        here = [one for one in same if one.place == first.place and not one.is_keyed]
        step = named.get(first.step, "")
        is_new = len({tuple(one.digests[1:] or one.digests) for one in here}) > 1
        anew = ", each time with something else in it (a key that is made anew is none)" if is_new else ""
        what = (
            f"{first.target} was sent {times(len(here))}, without the action's key{anew}: its receiver "
            "cannot tell that it is the same"
        )
        yield _twice(first, what, step, declared.get(step), trial)


def _opaque(campaign: Campaign, trial: Trial) -> Iterable[Finding]:
    calm = opaque_connections(campaign.calm[0])
    for (step, target), seen in opaque_connections(trial).items():
        if len(seen) > len(calm.get((step, target), seen[:1])):
            yield finding(
                Mistake.REPEATED,
                seen[0].place,
                f"{step_text(step)} connected to {target} {times(len(seen))}, and never asked for its key; "
                f"what it said there is not seen from outside; in {the_run(trial)}",
                "If it only reads, declare it reads_only=True; if it acts, pass nl.key() along",
                step=step,
                is_certain=False,
            )


def _files(campaign: Campaign, trial: Trial) -> Iterable[Finding]:
    """Find the steps that left a file otherwise than without faults, having been executed more than once."""
    calm = campaign.calm[0]
    declared, named, begun = declarations(trial), names(trial), executions(trial)
    usual = executions(calm)
    for path in differing_files(campaign.calm, trial):
        writers = [
            one for one in _writers(trial, path) if one.is_inside and begun[one.step] > usual[one.step]
        ]
        if not writers:
            continue
        writer = writers[0]
        lines = _compared(calm.changes.get(path), trial.changes.get(path))
        yield _twice(
            writer,
            f"{path} was written by {begun[writer.step]} executions and is not what it would be ({lines})",
            named[writer.step],
            declared.get(named[writer.step]),
            trial,
        )


def _outside_files(campaign: Campaign, trial: Trial) -> Iterable[Finding]:
    """Find the steps that changed a file of all runs once more when they were executed once more."""
    declared, named = declarations(trial), names(trial)
    for one in repeated_outside(campaign.calm, trial):
        line = one.line
        step = named.get(line.step, "")
        done = "appended to" if one.is_appended else "changed"
        doubt = "" if one.is_certain else "; whether that does harm cannot be told from outside"
        what = f"{line.target}, which is outside the tree, was {done} in {one.lives} lives{doubt}"
        effect = Effect(line.kind, line.target, line.place, line.step, line.life, line.at, line.is_inside)
        twice = _twice(effect, what, step, declared.get(step), trial)
        yield structs.replace(twice, is_certain=one.is_certain)


def _databases(campaign: Campaign, trial: Trial) -> Iterable[Finding]:  # noqa: ARG001
    """Find the actions that opened a database of all runs more than once, and nobody saw what they did."""
    declared, named = declarations(trial), names(trial)
    asked = {line.step for line in trial.lines if line.what is What.KEY}
    opened: defaultdict[tuple[str, str], dict[int, LedgerLine]] = defaultdict(dict)
    for line in trial.lines:
        if line.what is What.TOUCH and line.data.get("is_outside"):
            opened[line.step, line.target].setdefault(line.life, line)
    for (step, target), lives in opened.items():
        known = declared.get(named.get(step, ""))
        is_known = known is None or known.is_question or known.is_transactional
        if len(lives) > 1 and step not in asked and not is_known:
            yield finding(
                Mistake.REPEATED,
                next(iter(lives.values())).place,
                f"{step_text(step)} opened {target}, which is outside the tree, in {len(lives)} lives, and "
                f"never asked for its key; what it did there is not seen; in {the_run(trial)}",
                "If it only reads, declare it reads_only=True; if it acts, let it do the same when it does "
                "it again (upsert, or by nl.key())",
                step=step,
                is_certain=False,
            )


def _compared(was: Content | None, now: Content | None) -> str:
    if was is None or now is None:
        return "without faults there is none" if was is None else "now there is none"
    if was.lines == now.lines:
        return "something else is in it"
    return f"{was.lines} lines without faults, {now.lines} now"


def _writers(trial: Trial, path: str) -> list[Effect]:
    """Return what may have written a file: whoever opened it, else whoever started another program."""
    seen = effects(trial)
    touched = [
        Effect(line.kind, line.target, line.place, line.step, line.life, line.at, line.is_inside)
        for line in trial.lines
        if line.what is What.TOUCH and line.kind == "database"
    ]
    exact = [one for one in (*seen, *touched) if one.target.endswith(f"/{path}")]
    return exact or [one for one in seen if one.kind == "command"]


def _twice(effect: Effect, what: str, step: str, declared: DeclaredStep | None, trial: Trial) -> Finding:
    how = f"{what}; in {the_run(trial)}"
    if declared is not None and not declared.is_resumable:
        remedy = f"It said of {step} that it had not happened; let it find what was done, by its key"
        return finding(Mistake.VERIFY, effect.place, how, remedy, step=effect.step)
    remedy = (
        "Pass nl.key() along, as Idempotency-Key or however the receiver knows it; or make the body say "
        "the same when it says it again (write the whole file, upsert); or declare it resumable=False, "
        "with verify="
    )
    return finding(Mistake.REPEATED, effect.place, how, remedy, step=effect.step)
