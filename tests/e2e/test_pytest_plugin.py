"""The pytest plugin, as a project sees it that tests its agents with it."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ninelives as nl
import ninelives.core
import ninelives.engine
import ninelives.runtime
import ninelives.testing
from ninelives.chaos.trial.trial import ChaosFailed
from ninelives.testing import NotCrashproof, chaos

pytest_plugins = "pytester"

PLUGIN = "ninelives.testing.plugin"
ROOT = Path(__file__).parents[2]
AGENT = """
import pytest
import ninelives as nl

class Shop:
    def __init__(self):
        self.refunds = {}
        self.careless = []

@pytest.fixture
def shop():
    return Shop()

def declare(shop):
    @nl.action
    async def refund(order: str) -> str:
        shop.refunds.setdefault(nl.key(), order)
        shop.careless.append(order)
        return f"refunded {order}"

    @nl.agent
    async def support(order: str) -> str:
        await nl.sleep(86_400)
        return await refund(order)

    return support
"""


WARNINGS = ("-W", "error", "-W", "ignore::pytest.PytestAssertRewriteWarning")  # it may be loaded here already
OPTIONS = ("-p", PLUGIN, "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *WARNINGS)


@pytest.fixture(scope="module", autouse=True)
def _all_loaded() -> None:
    """Load all that tests in this process may load: pytester forgets modules that come with its runs."""
    for package in (ninelives.core, ninelives.engine, ninelives.runtime, ninelives.testing):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(*OPTIONS, *options)


def test_a_marked_test_is_killed_everywhere_and_told_as_one(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        AGENT
        + """
rounds = []

@pytest.fixture(scope="module")
def counted():
    rounds.append("begun")
    yield
    rounds.append("ended")

@pytest.mark.chaos
@pytest.mark.parametrize("order", ["A-1", "A-2"])
def test_refund(sandbox, shop, counted, order):
    rounds.append(order)
    assert sandbox.run(declare(shop), order) == f"refunded {order}"
    assert list(shop.refunds.values()) == [order]

def test_rounds(counted):
    assert rounds.count("A-1") > 20 and rounds.count("A-2") > 20
    assert rounds.count("begun") == 1 and "ended" not in rounds
"""
    )
    ran = run(pytester)
    ran.assert_outcomes(passed=3)
    ran.stdout.re_match_lines([r"chaos: 2 tests were killed \d\d+ times and passed as without a kill"])


def test_a_test_that_a_kill_breaks_says_which_and_how_to_see_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        AGENT
        + """
@pytest.mark.chaos
def test_refund(sandbox, shop):
    sandbox.run(declare(shop), "A-1")
    assert shop.careless == ["A-1"]

def test_another():
    pass
"""
    )
    ran = run(pytester)
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.re_match_lines(
        [
            r".*assert \['A-1', 'A-1'\] == \['A-1'\]",
            r"killed before commit \d+\. Without a kill the test passes\.",
            r"To repeat only this kill: pytest '.*::test_refund' --chaos-at before:commit:\d+",
        ]
    )
    at = ran.stdout.str().split("--chaos-at ")[1].split()[0]
    run(pytester, "--chaos-at", at).assert_outcomes(passed=1, failed=1)
    run(pytester, "--chaos-at", "before:create_runs:1").assert_outcomes(passed=2)
    nowhere = run(pytester, "--chaos-at", "before:commit:999")
    nowhere.assert_outcomes(passed=1, failed=1)
    nowhere.stdout.re_match_lines([r".*before:commit:999 was not reached.*commit \d+ times"])


def test_kills_are_limited_and_mistakes_in_the_mark_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        AGENT
        + """
rounds = []

@pytest.mark.chaos(kills=5, deaths=2)
def test_few(sandbox, shop):
    rounds.append(1)
    sandbox.run(declare(shop), "A-1")

def test_rounds():
    assert len(rounds) == 6

@pytest.mark.chaos(kill=5)
def test_other_arguments(sandbox): pass

@pytest.mark.chaos(kills=0)
def test_no_kills(sandbox): pass

@pytest.mark.chaos
def test_no_agent(): pass

@pytest.mark.chaos
def test_broken(sandbox): assert False, "by itself"

@pytest.mark.chaos
@pytest.mark.skip
def test_skipped(sandbox): pass
"""
    )
    ran = run(pytester, "-rf")
    ran.assert_outcomes(passed=2, failed=4, skipped=1)
    ran.stdout.fnmatch_lines(
        [
            "*Write chaos(kills=N, deaths=N)*",
            "*kills=0*",
            "*tests that run an agent in the fixture `sandbox`*",
            "*by itself*",
        ]
    )
    run(pytester, "--chaos-at", "before:read_run:1").stdout.fnmatch_lines(
        ["*'before:read_run:1' is not a kill*"]
    )


def test_the_fixtures_tell_stories(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        AGENT
        + """
from ninelives.testing import NotCrashproof

def test_careful(crashproof):
    def story(sandbox):
        shop = Shop()
        return sandbox.run(declare(shop), "A-1"), list(shop.refunds.values())
    assert crashproof(story).outcome == ("refunded A-1", ["A-1"])

def test_careless(crashproof):
    def story(sandbox):
        shop = Shop()
        return sandbox.run(declare(shop), "A-1"), shop.careless
    with pytest.raises(NotCrashproof):
        crashproof(story)

def test_alone(sandbox):
    assert sandbox.run(declare(Shop()), "A-1") == "refunded A-1"
"""
    )
    run(pytester).assert_outcomes(passed=3)


def test_it_works_beside_xdist(pytester: pytest.Pytester) -> None:
    tests = [
        f"""
@pytest.mark.chaos(kills=6)
def test_{number}(sandbox, shop):
    sandbox.run(declare(shop), "A-1")
    assert list(shop.refunds.values()) == ["A-1"]
"""
        for number in range(4)
    ]
    pytester.makepyfile(AGENT + "".join(tests))
    ran = pytester.runpytest_subprocess(*OPTIONS, "-n", "2")
    ran.assert_outcomes(passed=4)
    ran.stdout.re_match_lines([r"chaos: 4 tests were killed \d\d+ times and passed as without a kill"])


def test_a_project_that_does_not_use_it_pays_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
import sys

def test_nothing_is_loaded():
    heavy = ("ninelives.engine", "ninelives.core", "msgspec", "apsw")
    assert not [name for name in sys.modules if name.startswith(heavy)]
"""
    )
    ran = pytester.runpytest_subprocess(*OPTIONS)
    ran.assert_outcomes(passed=1)


def test_an_agent_is_killed_in_real_processes(tmp_path: Path) -> None:
    planted = (ROOT / "tests/chaos/planted/repeated.py").read_text(encoding="utf-8")
    file = tmp_path / "agents.py"
    file.write_text(planted, encoding="utf-8")
    with pytest.raises(NotCrashproof, match=r"agents\.py:\d+: a non-idempotent"):
        chaos(f"{file}:support", "it is broken", tree=tmp_path, seconds=1)
    file.write_text(planted.replace('open("a")', 'open("w")'), encoding="utf-8")
    assert chaos(f"{file}:support", "it is broken", tree=tmp_path, seconds=1).kills > 0

    file.write_text(planted + "\n\n@nl.agent\nasync def fails() -> None:\n    raise ValueError('no')\n")
    with pytest.raises(ChaosFailed, match=r"ValueError: no, at .*agents\.py:\d+"):
        chaos(f"{file}:fails", tree=tmp_path, seconds=1)

    @nl.agent
    async def local() -> None: ...

    with pytest.raises(nl.UsageError, match="cannot be found by another process"):
        chaos(local)


def test_testing_needs_no_pytest_and_pytest_finds_the_plugin() -> None:
    code = (
        "from ninelives.testing import chaos; "
        "from ninelives.engine.spec.registry import AGENTS; assert not AGENTS"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    code = "import sys; from ninelives.testing import *; assert not {'pytest', '_pytest'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}
