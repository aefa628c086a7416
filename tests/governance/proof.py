"""`python -m tests.governance.proof` (`make govern`): what governing promises, at full length, and its page.

Each part is a command that ends with 0 if its promise held and says in its last line what it came to; it can
be run alone. Exits with 1 when one did not hold.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.crash.stores import DURABLE
from tests.proof.commits import commit
from tests.proof.report import Result, judged, tell

ROOT = Path(__file__).parents[2]
_HERE = "tests/governance"
_SHOWN_LINES = 20


class Part(Struct, frozen=True):
    """A promise, and the command that shows it (what follows `python -m`); `takes`: for how long at most."""

    name: str
    promise: str
    command: tuple[str, ...]
    takes: float = 900.0


def parts(scale: float = 1.0) -> list[Part]:
    """Return all parts; `scale` makes the counts smaller, for trying it out."""

    def times(count: int) -> str:
        return str(max(1, round(count * scale)))

    found = [
        Part(
            "probes",
            "13 rules that deny nothing elsewhere are right here, or refused at load",
            (f"{_module('probes')}",),
        ),
        Part(
            "verdicts",
            "100,000 random calls, most of them wrong: none is let through, each verdict is right",
            (_module("fuzz_policy"), "--cases", times(100_000)),
        ),
        Part(
            "planted bugs",
            "code that swallows an error and allows is found by the random calls, whatever it swallows",
            ("pytest", "-q", f"{_HERE}/test_policy_fuzz.py", "-k", "planted"),
        ),
    ]
    found.append(
        Part(
            "tampering",
            "more than 300 attacks on the audit log and the store: with an anchor all are found",
            (_module("audit_campaign"),),
        )
    )
    found += [
        Part(
            f"budgets, {store}",
            "a budget of 1,000, twenty calls at once, workers killed: never over, nothing charged twice",
            (_module("budget_rounds"), "--store", store, "--rounds", times(10_000)),
            takes=4 * 3600.0,
        )
        for store in DURABLE
    ]
    found += [
        Part(
            f"halts, {store}",
            "50 agents that act every 5 ms: no protected action after a halt, others within 250 ms (99 %)",
            (_module("halt_rounds"), "--store", store, "--rounds", times(20)),
            takes=3600.0,
        )
        for store in DURABLE
    ]
    tests = {
        "stopped workers": (
            "a worker that was stopped begins nothing after the halt; a halt outlives all workers",
            ("test_halts.py",),
        ),
        "approvals": (
            "forged, replayed, stale, revoked and self-given approvals are refused, and the run is unharmed",
            ("test_approvers_answers.py", "test_approvers_runs.py", "test_approvers_signatures.py"),
        ),
        "OWASP": ("each of the ten risks has a scenario, on each store", ("test_owasp.py",)),
        "kills at the gate": (
            "killed around every write, a governed run comes to the same end",
            ("test_gate_kills.py",),
        ),
        "what it costs": (
            "a verdict costs no commit and few calls of functions, a reservation one commit",
            ("test_governing_cost.py",),
        ),
    }
    found += [
        Part(name, promise, ("pytest", "-q", *(f"{_HERE}/{file}" for file in files)), takes=3600.0)
        for name, (promise, files) in tests.items()
    ]
    return found


def _module(name: str) -> str:
    return f"tests.governance.{name}"


def perform(part: Part) -> Result:
    """Run a part, and return what it came to."""
    began = time.monotonic()
    command = [sys.executable, "-m", *part.command]
    try:
        ran = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=part.takes, check=False
        )
        said, is_held = ran.stdout + ran.stderr, ran.returncode == 0
    except subprocess.TimeoutExpired:
        said, is_held = f"it did not end within {part.takes:.0f} s", False
    lines = [one.strip() for one in said.splitlines() if one.strip()] or ["it said nothing"]
    numbers = next((one for one in reversed(lines) if any(map(str.isdigit, one))), lines[-1])
    found = judged(part.name, numbers.strip("= "), [] if is_held else lines[-_SHOWN_LINES:])
    found.seconds = round(time.monotonic() - began, 1)
    return found


class Proof(Struct, frozen=True, kw_only=True):
    """What a run of all parts came to; `only` if it was of those with this in their name."""

    at: str
    commit: str
    machine: str
    scale: float
    only: str
    results: list[Result]


def page(proof: Proof) -> str:
    """Return the page."""
    return "\n".join(_lines(proof)) + "\n"


def _lines(proof: Proof) -> Iterator[str]:
    known = {part.name: part for part in parts(proof.scale)}
    held = sum(one.status == "held" for one in proof.results)
    yield "# What governing promises, shown"
    yield ""
    yield "This page is generated by `make govern`; nothing in it is written by hand."
    yield (
        f"Last run {proof.at} of commit {proof.commit} on {proof.machine}: "
        f"{held} of {len(proof.results)} parts held, in "
        f"{sum(one.seconds for one in proof.results) / 60:.0f} minutes."
    )
    if proof.scale != 1:
        yield f"**Its counts are {proof.scale:g} of those of the full length.**"
    if proof.only:
        yield f"**Only the parts with `{proof.only}` in their name were run.**"
    yield ""
    yield "| part | promise | | what came of it |"
    yield "| --- | --- | --- | --- |"
    for one in proof.results:
        numbers = one.numbers.replace("|", "\\|")
        yield f"| {one.name} | {known[one.name].promise} | {one.status} | {numbers} |"
    yield ""
    yield "Each part can be run alone:"
    yield ""
    yield "```"
    for one in proof.results:
        yield f"python -m {' '.join(known[one.name].command)}"
    yield "```"
    yield ""
    yield (
        "Shown elsewhere: [injected tasks](agentdojo.md) by `make agentdojo`; [what it costs]"
        "(governance-cost.md) in microseconds, beside another toolkit, by `python -m benchmarks.governing`."
    )
    for one in proof.results:
        if one.violations:
            yield ""
            yield f"## {one.name}: {one.status}"
            yield ""
            yield "```"
            yield from one.violations
            yield "```"


def main() -> int:
    """Run the parts one after the other; keep what they came to."""
    parser = argparse.ArgumentParser(prog="python -m tests.governance.proof", description=__doc__)
    parser.add_argument("--only", default="", help="run the parts whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="make the counts smaller (0.01)")
    parser.add_argument("--folder", type=Path, default=Path("build/govern"))
    parser.add_argument("--page", type=Path, help="write this page, too (docs/governance-proof.md)")
    asked = parser.parse_args()
    wanted = [part for part in parts(asked.scale) if asked.only in part.name]
    proof = Proof(
        at=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=commit(),
        machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        scale=asked.scale,
        only=asked.only,
        results=[tell(perform(part)) for part in wanted],
    )
    asked.folder.mkdir(parents=True, exist_ok=True)
    (asked.folder / "proof.json").write_bytes(msgspec.json.format(msgspec.json.encode(proof), indent=1))
    if asked.page is not None:
        asked.page.write_text(page(proof), encoding="utf-8")
    return int(any(one.status == "violated" for one in proof.results))


if __name__ == "__main__":
    sys.exit(main())
