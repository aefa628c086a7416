"""The pytest plugin: the fixtures `sandbox` and `crashproof`, and the mark `chaos`.

A project that does not use them pays nothing: everything else is imported when a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ninelives.testing.kill_trials import Trials
    from ninelives.testing.sandbox import Sandbox

MARK = (
    "chaos(kills=None, deaths=1): run the test again and again with its sandbox killed before and after "
    "every writing store call (at most `kills` of these), `deaths` times in a row"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option --chaos-at."""
    group = parser.getgroup("ninelives")
    group.addoption("--chaos-at", metavar="before:CALL:N", help="in tests marked chaos, try only this kill")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", MARK)


@pytest.fixture
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Return a sandbox to run agents in: time is skipped, nothing is stored, the test answers for people."""
    from ninelives.testing.chaos_mark import sandbox_for

    with sandbox_for(request.node) as made:
        yield made


@pytest.fixture
def crashproof() -> Callable[..., Trials]:
    """Return what kills a story's worker at every store call: `crashproof(lambda sandbox: ...)`."""
    from ninelives.testing.kill_trials import crashproof

    return crashproof


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run tests with the mark in rounds; leave all other tests to pytest."""
    if item.get_closest_marker("chaos") is None:
        return None
    from ninelives.testing.chaos_mark import run_marked

    run_marked(item, nextitem)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how often tests were killed."""
    passed = terminalreporter.stats.get("passed", [])
    kills, points = (
        [value for report in passed for name, value in report.user_properties if name == wanted]
        for wanted in ("chaos kills", "chaos places")
    )
    if kills:
        tests = "1 test was" if len(kills) == 1 else f"{len(kills)} tests were"
        terminalreporter.write_line(
            f"chaos: {tests} killed {sum(kills)} times and passed as without a kill"
            f" ({sum(points)} possible kills)"
        )
