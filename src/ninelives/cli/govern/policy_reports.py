"""What the commands of `ninelives policy` print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import typer

from ninelives.cli.options import EXIT_FAILED, age_ms, opened
from ninelives.cli.output import emit, emit_json, emit_table, is_terminal, say, when_text
from ninelives.core.clock import moment
from ninelives.core.errors import UsageError
from ninelives.core.step_ids import step_text
from ninelives.governance.approvers.approvers import of_policy
from ninelives.governance.policy import cases, history, kept
from ninelives.governance.policy.declared import Declarations
from ninelives.governance.policy.file import PolicySpec, RuleSpec, parse_policy, read_text
from ninelives.governance.policy.judge import FilePolicy, load_policy
from ninelives.governance.policy.rules import warnings
from ninelives.governance.policy.tables import check_tables
from ninelives.runtime import agent_loader
from ninelives.views.counted import counted
from ninelives.views.escape import shown

_COLOURS: Final = {"fault": typer.colors.RED, "note": typer.colors.YELLOW}
_ORDER: Final = ("deny", "ask", "rewrite", "allow")


def check(file: Path, modules: Sequence[str], *, as_json: bool) -> None:
    """Print what is wrong with a file, and what may not be meant."""
    for module in modules:
        agent_loader.load(module)
    faults: list[UsageError] = []
    notes: list[tuple[int, str, str]] = []
    spec: PolicySpec | None = None
    try:
        spec = parse_policy(*read_text(file))
    except UsageError as error:
        faults.append(error)
    if spec is not None and modules:
        policy = FilePolicy(spec, Declarations())
        faults += policy.check()
        if not faults and (bad_case := cases.check(policy)) is not None:
            faults.append(bad_case)
        notes = list(warnings(spec, policy.declared)) if not faults else []
        if not faults and (unasked := _whom_nobody_is(policy)) is not None:
            if "approvers" in spec.tables:
                faults.append(unasked)
            else:  # the environment of the workers may name the approvers
                what = f"{unasked.what}: a process starts with it only where NINELIVES_APPROVERS names one"
                notes.append((spec.lines.of_table("policy"), what, unasked.remedy or ""))
    elif spec is not None:
        faults += [*FilePolicy(spec, Declarations([])).binder.syntax_problems(), *check_tables(spec, None)]
    is_typed = bool(modules)
    if as_json:
        emit_json(
            {
                "sound": not faults,
                "checked": "names and types" if is_typed else "form",
                "digest": spec.digest if spec is not None else None,
                "rules": len(spec.rules) if spec is not None else 0,
                "faults": [{"what": one.what, "remedy": one.remedy or ""} for one in faults],
                "notes": [{"line": line, "what": what, "remedy": remedy} for line, what, remedy in notes],
            }
        )
    else:
        _show_check(file, spec, faults, notes, is_typed=is_typed)
    if faults:
        raise typer.Exit(EXIT_FAILED)


def _whom_nobody_is(policy: FilePolicy) -> UsageError | None:
    """Return why the people that the rules ask cannot be asked, as a process finds it when it starts."""
    try:
        of_policy(policy, lambda: 0, policy.directory)
    except UsageError as error:
        return error
    return None


def _show_check(
    file: Path,
    spec: PolicySpec | None,
    faults: Sequence[UsageError],
    notes: Sequence[tuple[int, str, str]],
    *,
    is_typed: bool,
) -> None:
    for fault in faults:
        _emit_finding("fault", fault.what, fault.remedy or "")
    for line, what, remedy in notes:
        _emit_finding("note", f"{file}:{line}: {what}", remedy)
    if faults or spec is None:
        say(counted(len(faults), "fault"))
        return
    tables = [counted(len(found), name) for name, found in spec.tables.items() if isinstance(found, list)]
    rules = ", ".join([counted(len(spec.rules), "rule"), *tables])
    say(f"{file} is sound: {rules}, default {spec.default}, digest {spec.digest[:12]}")
    if not is_typed:
        say("only its form was checked: name the modules that declare the actions to check names and types")


def _loaded(file: Path, modules: Sequence[str]) -> FilePolicy:
    for module in modules:
        agent_loader.load(module)
    return load_policy(file)


def test(file: Path, modules: Sequence[str], *, verbose: bool, as_json: bool) -> None:
    """Print which tests of a file fail."""
    policy = _loaded(file, modules)
    found = list(cases.results(policy))
    failed = [one for one in found if one.problem]
    if as_json:
        emit_json({"passed": len(found) - len(failed), "failed": len(failed), "tests": found})
    elif not found:
        say(f"{file} has no tests: write them as [[test]] tables")
    else:
        listed = found if verbose else failed
        rows = [(*_named(one), ", ".join(one.rules), one.problem or one.why) for one in listed]
        if rows:
            emit_table(("test", "name", "call", "verdict", "rules", "why"), rows)
        say(f"{len(found) - len(failed)} of {counted(len(found), 'test')} passed")
    if failed:
        raise typer.Exit(EXIT_FAILED)


def show(named: str, *, text: bool, url: str, as_json: bool) -> None:
    """Print a policy's rules, or the policies of the store."""
    if named and Path(named).exists():
        source = read_text(Path(named))
        _show_spec(parse_policy(*source), text=text, as_json=as_json)
        return
    with opened(url) as store:
        every = [kept.find(store, named)] if named else list(kept.kept(store))
    found = sorted(every, key=lambda one: one[1].first_ms)
    if named:
        ((digest, one),) = found
        if not text and one.is_file:
            _show_spec(parse_policy(one.text, f"policy {digest[:12]}"), text=False, as_json=as_json)
        elif as_json:
            emit_json({"digest": digest, "name": one.name, "parts": one.parts, "text": one.text})
        else:
            emit(one.text)
    elif as_json:
        emit_json([{"digest": digest, "name": one.name, "first_ms": one.first_ms} for digest, one in found])
    elif found:
        rows = [(digest, one.name, _when(one.first_ms)) for digest, one in found]
        emit_table(("digest", "name", "first"), rows)
    else:
        say("no policy has governed runs of this store")


def _show_spec(spec: PolicySpec, *, text: bool, as_json: bool) -> None:
    if text and not as_json:
        emit(spec.text)
        return
    if as_json:
        fields = [name for name in RuleSpec.__struct_fields__ if name not in ("line", "when_line")]
        rules = [{name: getattr(rule, name) for name in fields} for rule in spec.rules]
        head: dict[str, Any] = {"name": spec.name, "digest": spec.digest, "default": spec.default}
        emit_json({**head, "on_error": spec.on_error, "rules": rules, "tables": sorted(spec.tables)})
        return
    say(f"policy {spec.name}, default {spec.default}, on_error {spec.on_error}, digest {spec.digest[:12]}")
    rows = [
        (rule.id, rule.do, *map(", ".join, (rule.actions, rule.kinds)), rule.when or "", rule.to or rule.why)
        for rule in sorted(spec.rules, key=lambda rule: _ORDER.index(rule.do))
    ]
    emit_table(("rule", "do", "actions", "kinds", "when", "to or why"), rows)
    for name, table in spec.tables.items():
        say(f"[{name}]: {counted(len(table), 'entry', 'entries')}")


def try_(file: Path, modules: Sequence[str], *, since: str, limit: int, url: str, as_json: bool) -> None:
    """Print what a policy would have changed."""
    policy = _loaded(file, modules)
    with opened(url) as store:
        found = history.try_policy(policy, store, store.read_clock() - age_ms(since))
    if as_json:
        emit_json(found)
        return
    if found.changes:
        rows = [
            (*_placed(one), one.was, one.would, ", ".join(one.rules), one.why)
            for one in found.changes[:limit]
        ]
        emit_table(("run", "step", "at", "was", "would be", "rules", "why"), rows)
    total = sum(found.changed.values())
    if total > limit:
        say(f"the newest {limit} of {total:,}; --limit shows more, --json all that are kept")
    calls = f"{counted(found.calls, 'call')} of {counted(found.runs, 'run')}"
    say(f"{calls} since {since}: {found.unchanged:,} as before")
    for what, count in found.changed.items():
        say(f"  {count:,} from {what}")
    if found.not_judged_count:
        say(f"{found.not_judged_count:,} could not be judged; they count as neither:")
        for why, count in found.reasons.items():
            say(f"  {count:,}: {why}")
    for run in found.unread_runs[:5]:
        say(f"run {run} cannot be read; see ninelives store verify")


def _named(one: cases.CaseResult) -> tuple[str, str, str, str]:
    return "FAIL" if one.problem else "ok", one.name, one.call, one.found


def _placed(one: history.PastCall) -> tuple[str, str, str]:
    return one.run, step_text(one.step) or one.action, _when(one.at_ms)


def _emit_finding(word: str, what: str, remedy: str) -> None:
    coloured = typer.style(word, fg=_COLOURS[word]) if is_terminal() else word
    emit(f"{coloured}: {shown(what)}" + (f"\n    {shown(remedy)}" if remedy else ""))


def _when(at_ms: int) -> str:
    return when_text(moment(at_ms))
