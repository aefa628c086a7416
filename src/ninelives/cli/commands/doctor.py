"""`ninelives doctor`: check whether a store is writable and durable."""

from __future__ import annotations

import typer

from ninelives.cli.options import EXIT_FAILED, EXIT_STORE, AsJson
from ninelives.cli.output import emit, emit_json, is_terminal
from ninelives.ops.doctor import DoctorFinding, Level, examine, worst
from ninelives.views.escape import shown

_COLOURS = {Level.OK: typer.colors.GREEN, Level.WARN: typer.colors.YELLOW, Level.FAIL: typer.colors.RED}
_EXITS = {Level.OK: 0, Level.WARN: EXIT_FAILED, Level.FAIL: EXIT_STORE}


def doctor(url: str, as_json: AsJson) -> None:
    """Examine a store and print each finding at once."""
    findings = []
    for finding in examine(url):
        findings.append(finding)
        if not as_json:
            emit(_line(finding))
    level = worst(findings)
    if as_json:
        emit_json({"status": level, "findings": findings})
    raise typer.Exit(_EXITS[level])


def _line(finding: DoctorFinding) -> str:
    level = f"{finding.level.value:<4}"
    if is_terminal():
        level = typer.style(level, fg=_COLOURS[finding.level])
    remedy = f"\n      {'':<12}→ {shown(finding.remedy)}" if finding.remedy else ""
    return f"{level}  {finding.check:<12}{shown(finding.what)}{remedy}"
