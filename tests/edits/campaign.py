"""Campaigns: pairs performed and judged; one that is red is made smaller and printed."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from tests.edits.judge import judge
from tests.edits.pairs import History, Pair, pair_of, perform
from tests.edits.programs import Block, Program, blocks_of, nodes, with_blocks
from tests.edits.source import source_of

MOST_TRIALS = 300
"""How many smaller pairs are tried for one that is red."""


class Red(Struct, frozen=True):
    """A pair in which something was wrong."""

    history: History
    violations: list[str]

    def __str__(self) -> str:
        return "\n".join(_lines(self.history, self.violations))


def red_of(seed: int) -> Red | None:
    """Perform the pair of a number; returns what was wrong with it, in the smallest pair that shows it."""
    history = perform(pair_of(seed))
    violations = judge(history)
    return shrunk(Red(history, violations)) if violations else None


def shrunk(red: Red) -> Red:
    """Leave out of a red pair what can be left out."""
    trials, is_smaller = 0, True
    while is_smaller and trials < MOST_TRIALS:
        is_smaller = False
        for pair in _smaller(red.history.pair):
            trials += 1
            if trials > MOST_TRIALS:
                break
            history = perform(pair)
            violations = judge(history)
            if violations:
                red, is_smaller = Red(history, violations), True
                break
    return red


def _smaller(pair: Pair) -> Iterator[Pair]:
    """Yield pairs that are a little smaller: one version, one node, or one wrapping less."""
    first, *later = pair.versions
    if len(later) > 1:
        yield replace(pair, versions=(first, later[0]))
        yield replace(pair, versions=(first, later[1]))
    sites = dict.fromkeys(node.site for version in pair.versions for node in nodes(version.program.block))
    for keeps_inner in (False, True):
        for site in sites:
            versions = tuple(
                replace(version, program=_without(version.program, site, keeps_inner=keeps_inner))
                for version in pair.versions
            )
            if versions != pair.versions and all(version.program.block for version in versions):
                yield replace(pair, versions=versions)


def _without(program: Program, site: str, *, keeps_inner: bool) -> Program:
    def left(block: Block) -> Block:
        found: list[object] = []
        for node in block:
            if node.site == site:
                found += [inner for one in blocks_of(node) for inner in one] if keeps_inner else []
            else:
                found.append(with_blocks(node, tuple(map(left, blocks_of(node)))))
        return tuple(found)  # type: ignore[arg-type]

    return replace(program, block=left(program.block))


def _lines(history: History, violations: list[str]) -> Iterator[str]:
    yield f"{history.pair.command}    (shows this pair again, made smaller)"
    yield from (f"WRONG: {violation}" for violation in violations)
    for number, life in enumerate(history.lives, 1):
        edits = ", ".join(life.version.edits) or "as it was first written"
        yield f"\n===== life {number}: {edits}; kill {life.version.kill}"
        yield f"on record before: {', '.join(map(str, life.before)) or 'nothing'}"
        if life.check is not None:
            yield f"check: {life.check.fit} {life.check.what}"
        yield f"ended {life.state}{', killed' if life.died else ''}{', diverged' if life.diverged else ''}"
        yield from life.waiting
        yield source_of(life.version.program)
    yield "===== the ledger"
    yield from map(str, history.events)
