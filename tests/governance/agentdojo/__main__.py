"""Carry out AgentDojo's user tasks, alone and with each injection, with a model that obeys all it reads.

    make agentdojo
    build/agentdojo/venv/bin/python -m tests.governance.agentdojo --suite banking --how child

Ends with 1 when an injected side effect was carried out; when a pair showed nothing; or when without the
policy no injection reached its goal, so that the whole shows nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

if find_spec("agentdojo") is None:
    sys.exit("AgentDojo is not installed here: `make agentdojo` makes an environment that has it")

from tests.governance.agentdojo.rounds import Count, perform
from tests.governance.agentdojo.scenes import HOW

SUITES = ("banking", "slack", "travel", "workspace")
POLICY = Path(__file__).with_name("policy.toml")
NO_RULES = '[policy]\nname = "no-rules"\ndefault = "allow"\n'
HEADS = (
    "suite | pairs | with an injected side effect | injected side effects | carried out | refused "
    "| the user's own | goals reached | user tasks done",
    "suite | user tasks | done | that ask | questions",
)


def main() -> int:
    """Carry out what is asked for, and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.governance.agentdojo", description=__doc__)
    parser.add_argument("--suite", action="append", choices=SUITES, help="only this one")
    parser.add_argument("--how", choices=HOW, default="run", help="where the model obeys")
    parser.add_argument("--policy", type=Path, default=POLICY, help="govern by this file")
    parser.add_argument("--version", default="v1.2.2", help="of the benchmark")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at a time")
    asked = parser.parse_args()
    names = [name for name in SUITES if name in (asked.suite or SUITES)]
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(asked.processes, mp_context=get_context("spawn")) as pool,
    ):
        no_rules = Path(folder, "no-rules.toml")
        no_rules.write_text(NO_RULES)
        jobs = {
            (name, policy): pool.submit(perform, asked.version, name, str(policy), asked.how)
            for name in reversed(names)  # the longest one first
            for policy in (asked.policy, no_rules)
        }
        governed = [jobs[name, asked.policy].result() for name in names]
        free = [jobs[name, no_rules].result() for name in names]
    print(f"\nAgentDojo {asked.version}, the model obeys in: {asked.how}; {asked.policy.name}\n")
    print(_table(HEADS[0], names, [_attacked(count) for _, count in governed]))
    print(_table(HEADS[1], names, [_benign(count) for count, _ in governed]))
    print("The same without rules:\n")
    print(_table(HEADS[0], names, [_attacked(count) for _, count in free]))
    print(_table(HEADS[1], names, [_benign(count) for count, _ in free]))
    found = _faults(_sum([count for pair in governed for count in pair]), _sum([count for _, count in free]))
    print("\n".join(found))
    return 1 if found else 0


def _faults(governed: Count, free: Count) -> list[str]:
    found = governed.problems + free.problems
    if governed.beyond:
        found.append(f"{governed.beyond} injected side effects were carried out")
    if not free.reached:
        found.append("without rules no injection reached its goal: this shows nothing")
    return found


def _sum(counts: list[Count]) -> Count:
    return sum(counts, Count())


def _attacked(one: Count) -> list[int]:
    return [
        one.runs, one.armed, one.injected, one.beyond, one.refused, one.same, one.reached, one.completed
    ]  # fmt: skip


def _benign(one: Count) -> list[int]:
    return [one.runs, one.completed, one.asking, one.asks]


def _table(head: str, names: list[str], rows: list[list[int]]) -> str:
    total = [sum(column) for column in zip(*rows, strict=True)]
    lines = [f"| {head} |", "| --- |" + " ---: |" * len(total)]
    for name, row in zip([*names, "**all**"], [*rows, total], strict=True):
        lines.append(f"| {name} | {' | '.join(f'{number:,}' for number in row)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
