"""What governing costs: `python -m benchmarks.governing`. Prints tables; see docs/governance-cost.md.

Steps: one run with its steps one after the other (W1), and many runs at once (W2), each without a policy,
with one, and with a budget besides; with resumable steps, which need a commit more for a budget, and with
steps that are not resumable, whose two commits carry the reservation and its settlement. They take turns in
one process, so that a machine that changes its pace does so for all; what counts are the ratios of the turns
of one round.

Verdicts: what a policy of 100 rules takes for one call, and the same of the Agent Governance Toolkit, in an
environment of its own under build/peers, also in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import ninelives as nl
from benchmarks.policy import CALL, file, gate, rules
from benchmarks.processes import run
from benchmarks.programs import ours, play
from benchmarks.programs.play import ROOT
from benchmarks.programs.with_agt import PACKAGE
from benchmarks.systems import System
from ninelives.core.governance.verdicts import Call
from ninelives.governance.policy.combined import Policies, open_policies
from ninelives.runtime import ProcessOptions

AGT = System(
    name="AGT",
    module="benchmarks.programs.with_agt",
    stores=(),
    setting="govern() around a function that does nothing",
    packages=(f"{PACKAGE}==5.0.0",),
)
STEPS = '"bench.step", "bench.once"'
ALLOW = f'[policy]\nname = "bench"\ndefault = "deny"\n[[rule]]\nid = "it"\nactions = [{STEPS}]\n'


@nl.action(name="bench.once", resumable=False)
async def once(number: int) -> str:
    """Give 1 KiB, as `bench.step` does; what it does must not be done twice."""
    return play.text()


@nl.agent(name="bench.onces")
async def onces(steps: int) -> int:
    """Take one step that is not resumable after the other."""
    for number in range(steps):
        await once(number)
    return steps


AGENTS: dict[str, Any] = {"": ours.sequence, ", not resumable": onces}


def _denials(count: int, actions: str, name: str) -> str:
    """Return rules that are asked about these actions, and do not apply."""
    return "".join(
        f'[[rule]]\nid = "{name}-{number}"\nactions = [{actions}]\n'
        f'when = "number > {1_000_000 + number}"\ndo = "deny"\n'
        for number in range(count)
    )


OTHERS = _denials(9, STEPS, "step") + _denials(90, '"bench.mark"', "mark")
POLICY = f'{ALLOW}when = "number >= 0"\ndo = "allow"\n{OTHERS}'
BUDGET = '[[budget]]\nname = "all"\nscope = "store"\nper = "day"\nactions = 1_000_000_000\n'
WAYS: dict[str, str] = {"nothing governs": "", "100 rules": POLICY, "100 rules, a budget": POLICY + BUDGET}


# Steps --------------------------------------------------------------------------------------------


async def _runtimes(stack: AsyncExitStack, folder: Path, process: ProcessOptions) -> dict[str, nl.Runtime]:
    found = {}
    for name, text in WAYS.items():
        home = Path(tempfile.mkdtemp(dir=folder))
        policy = home / "policy.toml"
        policy.write_text(text, encoding="utf-8")
        given = (policy,) if text else ()
        made = nl.Runtime(f"sqlite:///{home / 'runs.db'}", policy=given, process=process)
        found[name] = await stack.enter_async_context(made)
    return found


async def _in_turns(
    runtimes: Mapping[str, nl.Runtime], play: Callable[[nl.Runtime], object], rounds: int, steps: int
) -> dict[str, list[float]]:
    """Return the microseconds per step of each way, for each round."""
    took: dict[str, list[float]] = {name: [] for name in runtimes}
    names = list(runtimes)
    for number in range(-1, rounds):  # the first round is not counted
        first = number % len(names)
        for name in names[first:] + names[:first]:
            seconds: float = await play(runtimes[name])  # type: ignore[misc]
            if number >= 0:
                took[name].append(seconds / steps * 1e6)
    return took


async def one_run(folder: Path, rounds: int, steps: int, agent: Any) -> dict[str, list[float]]:
    """W1: one run, one step after the other."""

    async def play(rt: nl.Runtime) -> float:
        began = time.perf_counter()
        assert await rt.run(agent, steps) == steps
        return time.perf_counter() - began

    async with AsyncExitStack() as stack:
        process = ProcessOptions(is_dedicated=True)  # as `nl.run` makes it
        return await _in_turns(await _runtimes(stack, folder, process), play, rounds, steps)


async def many_runs(folder: Path, rounds: int, runs: int, steps: int, agent: Any) -> dict[str, list[float]]:
    """W2: many runs at once, from the first start to the last result."""

    async def play(rt: nl.Runtime) -> float:
        began = time.perf_counter()
        started = await asyncio.gather(*(rt.start(agent, steps) for _ in range(runs)))
        await rt.work(concurrency=runs, until_idle=True)
        assert [await one.result() for one in started] == [steps] * runs
        return time.perf_counter() - began

    async with AsyncExitStack() as stack:
        runtimes = await _runtimes(stack, folder, ProcessOptions())
        return await _in_turns(runtimes, play, rounds, runs * steps)


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return low, middle, high


def _show_steps(what: str, took: Mapping[str, list[float]]) -> None:
    base = next(iter(took.values()))
    print(f"\n{what}\n\n| | µs per step | ratio: median (quartiles) |\n| --- | --- | --- |")
    for name, values in took.items():
        low, middle, high = _quartiles([one / zero for one, zero in zip(values, base, strict=True)])
        said = f"{middle:.2f} ({low:.2f} to {high:.2f})" if values is not base else "1"
        print(f"| {name} | {statistics.median(values):,.0f} | {said} |")


# Verdicts -----------------------------------------------------------------------------------------


def _timed(judge: Callable[[Call], object], calls: int) -> list[float]:
    for _ in range(200):
        judge(CALL)
    took = []
    for _ in range(calls):
        began = time.perf_counter()
        judge(CALL)
        took.append((time.perf_counter() - began) * 1e6)
    return took


def verdicts(rounds: int) -> tuple[dict[str, list[float]], str]:
    """Return the microseconds of each call, and the version of the other toolkit."""
    AGT.install()
    some = rules(9, "refund") + rules(90, "other")
    mine: dict[str, tuple[Policies, int]] = {
        "Nine Lives, 1 rule": (open_policies(file("")), 2_000),
        "Nine Lives, 100 rules, 10 of them for the action": (open_policies(file(some)), 2_000),
        "Nine Lives, 100 rules, all for the action": (open_policies(file(rules(99, "refund"))), 2_000),
        "Nine Lives, a function of Python (on its thread)": (open_policies(gate), 300),
    }
    theirs = {
        "AGT, 1 rule, audit in memory": (1, 1),
        "AGT, 100 rules, audit in memory": (100, 1),
        "AGT, 100 rules, no audit": (100, 0),
    }
    took: dict[str, list[float]] = {name: [] for name in (*mine, *theirs)}
    version = ""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for name, (policies, calls) in mine.items():
                took[name] += _timed(policies.judge, calls)
            for name, (count, audit) in theirs.items():
                words = (AGT.python, "-m", AGT.module, "verdict", "none", f"rules={count}", f"audit={audit}")
                environment = {**os.environ, "PYTHONPATH": str(ROOT)}
                said = json.loads(run(words, log=Path(folder, "log"), environment=environment).said)
                took[name] += said["took"]
                version = said["version"]
    return took, version


def _show_verdicts(took: Mapping[str, list[float]], version: str) -> None:
    print(f"\nA verdict ({PACKAGE} {version})\n\n| | p50 µs | p99 µs |\n| --- | --- | --- |")
    for name, values in took.items():
        hundredths = statistics.quantiles(values, n=100)
        print(f"| {name} | {hundredths[49]:,.1f} | {hundredths[98]:,.1f} |")


def main() -> None:
    """Measure what is asked for, and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.governing", description=__doc__)
    parser.add_argument("what", nargs="*", choices=[[], "W1", "W2", "verdict"], help="by default, all")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="measure the disk that this is on")
    asked = parser.parse_args()
    what = asked.what or ["W1", "W2", "verdict"]
    print(f"Nine Lives {nl.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(dir=asked.folder) as made:
        folder = Path(made)
        for kind, agent in AGENTS.items():
            if "W1" in what:
                title = f"W1: one run of 200 steps{kind}, one after the other; {asked.rounds} rounds"
                _show_steps(title, asyncio.run(one_run(folder, asked.rounds, 200, agent)))
            if "W2" in what:
                title = f"W2: 100 runs of 20 steps{kind}, at once; {asked.rounds} rounds"
                _show_steps(title, asyncio.run(many_runs(folder, asked.rounds, 100, 20, agent)))
    if "verdict" in what:
        _show_verdicts(*verdicts(max(1, asked.rounds // 3)))


if __name__ == "__main__":
    main()
