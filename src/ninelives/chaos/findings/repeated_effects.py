"""Find side effects that were repeated because their step was executed again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec import structs

from ninelives.chaos.campaign.campaign import Campaign
from ninelives.chaos.campaign.comparison import called_differently, differing_files, repeated_outside
from ninelives.chaos.findings.effects import (
    DeclaredStep,
    Effect,
    declarations,
    effect_of,
    effects,
    executions,
    opaque_connections,
    surplus,
)
from ninelives.chaos.findings.finding import Finding, Mistake, finding, grouped, the_run, times
from ninelives.chaos.ledger import LedgerLine, What
from ninelives.chaos.trial.trial import Trial
from ninelives.chaos.trial.work_tree import Content
from ninelives.core.step_ids import step_text


def repeated(campaign: Campaign) -> Iterable[Finding]:
    """Find the steps whose effects were repeated; per line, a certain finding wins over a possible one."""
    found: dict[str, Finding] = {}
    # A step that was repeated with other arguments has a different mistake, which is already reported.
    diverged = {step_text(step) for _, step in grouped(campaign, What.DIVERGED)}
    diverged |= {step_text(step) for trial in campaign.trials for step in called_differently(trial)}
    for trial in campaign.trials:
        for detect in (_requests, _files, _outside_files, _databases, _opaque):
            for one in detect(campaign, trial):
                at = f"{one.file}:{one.line}"
                is_better = one.is_certain and at in found and not found[at].is_certain
                if one.step not in diverged and (at not in found or is_better):
                    found[at] = one
    return found.values()


def _requests(campaign: Campaign, trial: Trial) -> Iterable[Finding]:
    declared = declarations(trial)
    for same, _ in surplus(campaign.calm, trial):
        first = next((one for one in same if not one.is_keyed), same[0])
        here = [one for one in same if one.location == first.location and not one.is_keyed]
        is_new = len({tuple(one.digests[1:] or one.digests) for one in here}) > 1
        varying = ", each time with different content (a key must not be new in each attempt)" * is_new
        what = (
            f"{first.target} was sent {times(len(here))}, without the action's key{varying}: its receiver "
            "cannot recognise the repetition"
        )
        yield _twice(first, what, declared.get(first.step), trial)


def _opaque(campaign: Campaign, trial: Trial) -> Iterable[Finding]:
    calm = opaque_connections(campaign.calm[0])
    for (step, target), seen in opaque_connections(trial).items():
        if len(seen) > len(calm.get((step, target), seen[:1])):
            yield finding(
                Mistake.REPEATED,
                seen[0].location,
                f"{step_text(step)} connected to {target} {times(len(seen))}, and never called nl.key(); "
                f"chaos cannot see what it sent; in {the_run(trial)}",
                "If it only reads, declare it reads_only=True; if it acts, send nl.key() with it",
                step=step,
                is_certain=False,
            )


def _files(campaign: Campaign, trial: Trial) -> Iterable[Finding]:
    """Find steps that were executed more than once and left a file different from the calm runs."""
    calm = campaign.calm[0]
    declared, begun, usual = declarations(trial), executions(trial), executions(calm)
    for path in differing_files(campaign.calm, trial):
        writers = [
            one for one in _writers(trial, path) if one.is_inside and begun[one.step] > usual[one.step]
        ]
        if not writers:
            continue
        writer = writers[0]
        lines = _compared(calm.changes.get(path), trial.changes.get(path))
        what = (
            f"{path} was written by {begun[writer.step]} executions of the step and differs from the run "
            f"without faults ({lines})"
        )
        yield _twice(writer, what, declared.get(writer.step), trial)


def _outside_files(campaign: Campaign, trial: Trial) -> Iterable[Finding]:
    """Find steps that changed a file outside the tree again when they were executed again."""
    declared = declarations(trial)
    for one in repeated_outside(campaign.calm, trial):
        line = one.line
        done = "appended to" if one.is_appended else "changed"
        doubt = "" if one.is_certain else "; chaos cannot see whether that does harm"
        what = f"{line.target}, outside the tree, was {done} in {one.lives} processes{doubt}"
        twice = _twice(effect_of(line), what, declared.get(line.step), trial)
        yield structs.replace(twice, is_certain=one.is_certain)


def _databases(campaign: Campaign, trial: Trial) -> Iterable[Finding]:  # noqa: ARG001
    """Find actions that opened a database outside the tree more than once; their writes are not visible."""
    declared = declarations(trial)
    keyed = {line.step for line in trial.lines if line.what is What.KEY}
    opened: defaultdict[tuple[str, str], dict[int, LedgerLine]] = defaultdict(dict)
    for line in trial.lines:
        if line.what is What.TOUCH and line.data.get("is_outside"):
            opened[line.step, line.target].setdefault(line.life, line)
    for (step, target), lives in opened.items():
        known = declared.get(step)
        is_known = known is None or known.is_question or known.is_transactional
        if len(lives) > 1 and step not in keyed and not is_known:
            yield finding(
                Mistake.REPEATED,
                next(iter(lives.values())).location,
                f"{step_text(step)} opened {target}, outside the tree, in {len(lives)} processes, and never "
                f"called nl.key(); chaos cannot see what it wrote; in {the_run(trial)}",
                "If it only reads, declare it reads_only=True; if it writes, make the write idempotent "
                "(upsert, or by nl.key())",
                step=step,
                is_certain=False,
            )


def _compared(was: Content | None, now: Content | None) -> str:
    if was is None or now is None:
        return "missing without faults" if was is None else "missing with faults"
    if was.lines == now.lines:
        return "different content"
    return f"lines: {was.lines} without faults, {now.lines} with"


def _writers(trial: Trial, path: str) -> list[Effect]:
    """Return the effects that may have written a file: those that opened it, else all started programs."""
    seen = effects(trial)
    touched = [effect_of(line) for line in trial.lines if line.what is What.TOUCH and line.kind == "database"]
    exact = [one for one in (*seen, *touched) if one.target.endswith(f"/{path}")]
    return exact or [one for one in seen if one.kind == "command"]


def _twice(effect: Effect, what: str, declared: DeclaredStep | None, trial: Trial) -> Finding:
    how = f"{what}; in {the_run(trial)}"
    if declared is not None and not declared.is_resumable:
        wrong = f"Its verify= reported that {declared.name} had not happened"
        remedy = f"{wrong}; make it find what was done, by its key"
        return finding(Mistake.VERIFY, effect.location, how, remedy, step=effect.step)
    remedy = (
        "Send nl.key() with it, as Idempotency-Key or as the receiver expects it; or make the body "
        "idempotent (write the whole file, upsert); or declare the action resumable=False, with verify="
    )
    return finding(Mistake.REPEATED, effect.location, how, remedy, step=effect.step)
