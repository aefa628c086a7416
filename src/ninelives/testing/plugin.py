"""The pytest plugin: the fixtures `sandbox` and `crashproof`, and the mark `chaos`.

It costs a project that does not use them nothing: all else is imported when a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ninelives.testing.kill_trials import Trials
    from ninelives.testing.sandbox import Sandbox

MARK = (
    "chaos(kills=None, deaths=1): run the test again and again, its sandbox killed before and after every "
    "store call that writes (or at so many of them), so many times in a row"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that tries one kill only."""
    group = parser.getgroup("ninelives")
    group.addoption("--chaos-at", metavar="before:CALL:N", help="tests marked chaos: try this one kill only")


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of the mark."""
    config.addinivalue_line("markers", MARK)


@pytest.fixture
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Give a place to run agents in: no time passes, nothing is kept, people answer when told to."""
    from ninelives.testing.chaos_mark import sandbox_for

    with sandbox_for(request.node) as made:
        yield made


@pytest.fixture
def crashproof() -> Callable[..., Trials]:
    """Give what kills the worker of a story at every store call: `crashproof(lambda sandbox: ...)`."""
    from ninelives.testing.kill_trials import crashproof

    return crashproof


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test with the mark as often as it says; leave all others alone."""
    if item.get_closest_marker("chaos") is None:
        return None
    from ninelives.testing.chaos_mark import run_marked

    run_marked(item, nextitem)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how often tests were killed."""
    passed = terminalreporter.stats.get("passed", [])
    kills, places = (
        [value for report in passed for name, value in report.user_properties if name == wanted]
        for wanted in ("chaos kills", "chaos places")
    )
    if kills:
        tests = "1 test was" if len(kills) == 1 else f"{len(kills)} tests were"
        terminalreporter.write_line(
            f"chaos: {tests} killed {sum(kills)} times and ended as without"
            f" ({sum(places)} places to be killed at)"
        )
