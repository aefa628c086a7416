"""Run a test with the mark `chaos`: once without a kill, then once per kill, reported as one test.

Each round is complete: function-scoped fixtures are set up and torn down again; fixtures of the module or
session are kept until after the last round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import pytest
from _pytest.runner import runtestprotocol

from ninelives.core.errors import UsageError
from ninelives.testing.dying_store import Kill, parse_kill
from ninelives.testing.kill_trials import TRIES, choose, where_killed
from ninelives.testing.sandbox import Sandbox

ROUND = pytest.StashKey["KillRound"]()


class KillRound:
    """One execution of a marked test: its kill, and the sandboxes that it used."""

    def __init__(self, kill: Kill | None, deaths: int) -> None:
        self.kill, self.deaths = kill, deaths
        self.sandboxes: list[Sandbox] = []

    @property
    def calls(self) -> Sequence[str]:
        """The writing store calls of the sandbox that made most of them."""
        return max((sandbox.calls for sandbox in self.sandboxes), default=(), key=len)

    @property
    def kills(self) -> int:
        """How often a sandbox was killed."""
        return sum(len(sandbox.kills) for sandbox in self.sandboxes)


def sandbox_for(item: pytest.Item) -> Sandbox:
    """Make the sandbox of a test; in a kill round, one that dies at its kill."""
    present = item.stash.get(ROUND, None)
    if present is None:
        return Sandbox()
    made = Sandbox(kill=present.kill, deaths=present.deaths)
    present.sandboxes.append(made)
    return made


def run_marked(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Run a test in rounds, and report it as one."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = _rounds(item, nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _rounds(item: pytest.Item, nextitem: pytest.Item | None) -> Sequence[pytest.TestReport]:
    wrong, reports = "", list[pytest.TestReport]()
    try:
        reports = _killed_everywhere(item)
    except UsageError as error:
        wrong = str(error)
    if wrong:
        reports = [_report(item, "call", lambda: pytest.fail(wrong, pytrace=False))]
    session = cast("Any", item.session)
    ended = _report(item, "teardown", lambda: session._setupstate.teardown_exact(nextitem))
    return [*reports, ended] if ended.failed else reports


def _killed_everywhere(item: pytest.Item) -> list[pytest.TestReport]:
    kills, deaths, at = _options(item)
    first = KillRound(None, deaths)
    reports = _round(item, first)
    if not _has_passed(reports):
        return reports
    if not first.calls:
        raise UsageError("the mark chaos is for tests that run an agent in the fixture `sandbox`")
    made = missed = 0
    for kill in [at] if at is not None else choose(first.calls, kills):
        present = KillRound(kill, deaths)
        reports = _round(item, present)
        for _ in range(TRIES - 1):
            if _has_passed(reports) and not present.kills:
                present = KillRound(kill, deaths)
                reports = _round(item, present)
        if not _has_passed(reports):
            where = "; ".join(where_killed(one, kill) for one in present.sandboxes)
            again = f"To repeat only this kill: pytest {item.nodeid!r} --chaos-at {kill}"
            _say(reports, f"{where}. Without a kill the test passes.\n{again}")
            return reports
        made += present.kills
        missed += not present.kills
    if at is not None and not made:
        raise UsageError(
            f"nothing was killed: {at} was not reached; without a kill the test calls {at.call} "
            f"{first.calls.count(at.call)} times",
            remedy="Use a kill from a failure report",
        )
    _say(reports, f"killed {made} times, at {len(first.calls)} store calls; {missed} kills were not reached")
    for report in reports:
        points = 2 * len(first.calls)
        report.user_properties += (
            [("chaos kills", made), ("chaos places", points)] if report.when == "call" else []
        )
    return reports


def _options(item: pytest.Item) -> tuple[int | None, int, Kill | None]:
    """Read the mark and the option. Raises UsageError."""
    mark, given = item.get_closest_marker("chaos"), item.config.getoption("--chaos-at")
    options: dict[str, Any] = {"kills": None, "deaths": 1, **(mark.kwargs if mark is not None else {})}
    if options.keys() != {"kills", "deaths"} or (mark is not None and mark.args):
        raise UsageError("unknown arguments of pytest.mark.chaos", remedy="Write chaos(kills=N, deaths=N)")
    if type(options["deaths"]) is not int or options["deaths"] < 1:
        raise UsageError(
            f"deaths={options['deaths']!r} is not valid", remedy="Give the deaths in a row, at least 1"
        )
    choose(["commit"], options["kills"])
    if not isinstance(item, pytest.Function) or not hasattr(item, "_initrequest"):
        raise UsageError("the mark chaos is for test functions")
    return options["kills"], options["deaths"], parse_kill(given) if given else None


def _round(item: pytest.Item, present: KillRound) -> list[pytest.TestReport]:
    """Run a test once, with fresh fixtures."""
    function = cast("Any", item)
    function._initrequest()  # fresh fixtures; other plugins that repeat tests do the same
    function._report_sections.clear()
    item.stash[ROUND] = present
    # Pretend that another test of the same module follows, so that shared fixtures are kept.
    sibling = pytest.Function.from_parent(function.parent, name=item.name, callobj=function.obj)
    return runtestprotocol(item, log=False, nextitem=sibling)


def _report(
    item: pytest.Item, when: Literal["call", "teardown"], work: Callable[[], None]
) -> pytest.TestReport:
    return pytest.TestReport.from_item_and_call(item, pytest.CallInfo.from_call(work, when=when))


def _has_passed(reports: Sequence[pytest.TestReport]) -> bool:
    return all(report.passed for report in reports)


def _say(reports: Sequence[pytest.TestReport], text: str) -> None:
    for report in reports:
        if report.failed or report.when == "call":
            report.sections.append(("chaos", text))
