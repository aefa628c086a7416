"""Edits on a parked run with mails and payments: nothing is done twice, and `check` says so before."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HEAD = """
import asyncio
import ninelives as nl

def ledger(line):
    with open("ledger", "a") as file:
        file.write(line + "\\n")

@nl.decision
async def choose(who: str) -> int:
    return len(who)

@nl.action
async def send_mail(to: str) -> str:
    ledger(f"mail {to}")
    return to

@nl.action(resumable=False)
async def pay(cents: int) -> str:
    ledger(f"pay {cents}")
    return "paid"

@nl.action
async def ship(what: str) -> str:
    ledger(f"ship {what}")
    return what
"""

OLD = """
async def notify(who):
    await send_mail(who)
    await pay(await choose(who))

@nl.agent
async def job() -> str:
    nl.on_failure(ship, "back")
    await asyncio.gather(notify("ann"), notify("robert"))
    await nl.receive("go", type=str)
    return await ship("box")
"""

RENAMED = HEAD.replace("async def send_mail", "async def send_letter") + OLD.replace(
    "send_mail", "send_letter"
)
ALIASED = RENAMED.replace(
    "@nl.action\nasync def send_letter", '@nl.action(aliases=["send_mail"])\nasync def send_letter'
)
SEQUENCE = 'await notify("ann")\n    await notify("robert")'
GATHER = 'await asyncio.gather(notify("ann"), notify("robert"))'

GROUP = """async with asyncio.TaskGroup() as group:
        for one in ("robert", "ann"):
            group.create_task(notify(one))"""
BOTH = f"""
async def both():
    {GATHER}
"""
PARK = """
import asyncio, agents, ninelives as nl

async def main():
    async with nl.Runtime("sqlite:///runs.db") as rt:
        await rt.start(agents.job, id="one")
        await rt.work(until_idle=True)
        await (await rt.get("one")).signal("go", "now")

asyncio.run(main())
"""

FINE = {
    "the same": HEAD + OLD,
    "step renamed with an alias": ALIASED,
    "helper renamed": HEAD + OLD.replace("notify", "tell_them"),
    "one more task": HEAD + OLD.replace(GATHER, "await asyncio.create_task(both())") + BOTH,
    "gather made a sequence": HEAD + OLD.replace(GATHER, SEQUENCE),
    "task group": HEAD + OLD.replace(GATHER, GROUP),
    "effect inserted for later runs": HEAD
    + OLD.replace(GATHER, f'if nl.patched("x"):\n        await ship("x")\n    {GATHER}'),
    "parameter of a compensation added": HEAD.replace("ship(what: str)", 'ship(what: str, by: str = "")')
    + OLD,
    "effect given up": HEAD
    + OLD.replace("    await send_mail(who)\n", "").replace("@nl.agent", '@nl.agent(forgets=["send_mail"])'),
}

REFUSED = {
    "compensation changed": (HEAD + OLD.replace('ship, "back"', 'ship, "all back"'), 'nl.patched("ship")'),
    "effect registered instead, and the code fails": (
        HEAD + OLD.replace(GATHER, 'nl.on_failure(send_mail, "ann")\n    raise ValueError("no")'),
        'forgets=["send_mail"]',
    ),
    "effect wrapped in a decision": (
        HEAD
        + "@nl.decision\nasync def tell(who: str) -> str:\n    return await send_mail(who)\n"
        + OLD.replace("await send_mail(who)", "await tell(who)"),
        "Call send_mail from the agent",
    ),
    "step renamed": (RENAMED, 'aliases=["send_mail"]'),
    "effect inserted": (HEAD + OLD.replace(GATHER, f'await ship("x")\n    {GATHER}'), 'nl.patched("ship")'),
    "argument changed": (
        HEAD + OLD.replace("pay(await choose(who))", "pay(7 + await choose(who))"),
        "ignore=",
    ),
}


def command(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ninelives", *words, "--store", "sqlite:///runs.db"],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def parked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run that has sent two mails, paid twice, and waited for a signal that has come."""
    home = tmp_path_factory.mktemp("parked")
    (home / "agents.py").write_text(HEAD + OLD, encoding="utf-8")
    subprocess.run([sys.executable, "-c", PARK], cwd=home, check=True, timeout=60)
    assert effects(home) == ["mail ann", "mail robert", "pay 3", "pay 6"]
    return home


def effects(home: Path) -> list[str]:
    """Return what was done to the world."""
    return sorted((home / "ledger").read_text(encoding="utf-8").splitlines())


def edited(parked: Path, home: Path, code: str) -> dict[str, Any]:
    """Change the code, check it, and then let the run go on with it."""
    shutil.copytree(parked, home, dirs_exist_ok=True)
    (home / "agents.py").write_text(code, encoding="utf-8")
    checked = command(home, "check", "agents.py", "--json")
    report: dict[str, Any] = json.loads(checked.stdout)
    report["exit"] = checked.returncode
    report["run"] = command(home, "run", "agents.py:job", "--id", "one")
    return report


@pytest.mark.parametrize("edit", FINE)
def test_an_edit_that_check_lets_through_does_no_effect_twice(
    edit: str, parked: Path, tmp_path: Path
) -> None:
    report = edited(parked, tmp_path, FINE[edit])
    assert report["exit"] == 0, report
    assert (report["problems"], report["warnings"]) == ([], [])
    assert report["run"].returncode == 0, report["run"].stderr
    assert effects(tmp_path) == ["mail ann", "mail robert", "pay 3", "pay 6", "ship box"]


@pytest.mark.parametrize("edit", REFUSED)
def test_an_edit_that_check_refuses_is_refused_before_anything_happens(
    edit: str, parked: Path, tmp_path: Path
) -> None:
    code, remedy = REFUSED[edit]
    report = edited(parked, tmp_path, code)
    assert report["exit"] == 1
    (problem,) = report["problems"]
    assert problem["fit"] == "diverges"
    assert remedy in problem["remedy"]
    assert report["run"].returncode == 3
    assert problem["what"] in report["run"].stderr
    assert effects(tmp_path) == ["mail ann", "mail robert", "pay 3", "pay 6"]


def test_an_effect_that_was_removed_is_named_and_stops_the_run_before_its_next_effect(
    parked: Path, tmp_path: Path
) -> None:
    report = edited(parked, tmp_path, HEAD + OLD.replace("    await send_mail(who)\n", ""))
    assert report["exit"] == 0
    (warning,) = report["warnings"]
    assert len(warning["unreached"]) == 2
    assert 'forgets=["send_mail"]' in warning["remedy"]
    assert report["run"].returncode == 3
    assert 'forgets=["send_mail"]' in report["run"].stderr
    assert effects(tmp_path) == ["mail ann", "mail robert", "pay 3", "pay 6"]


def test_an_effect_that_is_registered_instead_is_named_and_stops_the_run_before_it_fails(
    parked: Path, tmp_path: Path
) -> None:
    registered = OLD.replace("await send_mail(who)", "nl.on_failure(send_mail, who)")
    code = HEAD + registered.replace('return await ship("box")', 'raise ValueError("no")')
    report = edited(parked, tmp_path, code)
    assert report["exit"] == 0
    (warning,) = report["warnings"]
    (said,) = [one for one in warning["warnings"] if "'send_mail'" in one["what"]]
    assert "if the run fails before the code calls it, it is stopped" in said["what"]
    assert report["run"].returncode == 3
    assert "Put the call of send_mail back" in report["run"].stderr
    assert effects(tmp_path) == ["mail ann", "mail robert", "pay 3", "pay 6"]


def test_a_compensation_that_is_declared_no_more_is_refused_although_the_run_may_not_need_it(
    parked: Path, tmp_path: Path
) -> None:
    gone = (HEAD + OLD).replace('    nl.on_failure(ship, "back")\n', "").replace("ship(", "send_off(")
    failing = gone.replace('return await send_off("box")', 'raise ValueError("no")')
    report = edited(parked, tmp_path / "gone", failing)
    assert report["exit"] == 1
    (problem,) = report["problems"]
    assert problem["fit"] == "diverges"
    assert "the compensation 'ship' is not declared in this code" in problem["what"]
    assert 'aliases=["ship"]' in problem["remedy"]
    assert report["run"].returncode == 3
    assert problem["what"] in report["run"].stderr

    kept = gone.replace("@nl.action\nasync def send_off", '@nl.action(aliases=["ship"])\nasync def send_off')
    assert edited(parked, tmp_path / "kept", kept)["exit"] == 0


def test_a_decision_that_is_asked_otherwise_is_counted_and_asked_again(parked: Path, tmp_path: Path) -> None:
    code = HEAD + OLD.replace("choose(who)", "choose(who.upper())")
    report = edited(parked, tmp_path, code)
    assert report["exit"] == 0
    assert report["asked_again"] == 2
    (warning,) = report["warnings"]
    assert len(warning["asked_again"]) == 2
    assert report["run"].returncode == 0, report["run"].stderr
    assert effects(tmp_path) == ["mail ann", "mail robert", "pay 3", "pay 6", "ship box"]


def test_a_decision_that_was_renamed_is_named_with_the_line_that_keeps_its_answer(
    parked: Path, tmp_path: Path
) -> None:
    renamed = (HEAD + OLD).replace("choose(", "pick(")
    (warning,) = edited(parked, tmp_path / "bare", renamed)["warnings"]
    no_more, unreached = warning["warnings"]
    assert "no longer called" in no_more["what"]
    assert no_more["remedy"] == 'If choose was renamed, declare the step with aliases=["choose"]'
    first, rest = unreached["remedy"].split("; ")
    assert first == "First declare the aliases= of what was renamed, and check again"
    assert rest == "pay: nothing to write if the code still calls it after the new step"

    kept = renamed.replace("@nl.decision", '@nl.decision(aliases=["choose"])')
    assert edited(parked, tmp_path / "kept", kept)["warnings"] == []


def test_an_effect_that_the_code_ends_without_is_not_said_to_stop_the_run(
    parked: Path, tmp_path: Path
) -> None:
    report = edited(parked, tmp_path, HEAD + OLD.replace(GATHER, 'if True: return "no"'))
    (warning,) = report["warnings"]
    (said,) = [one for one in warning["warnings"] if "forgets=" in one["remedy"]]
    assert "the code ends without calling it" in said["what"]
    assert report["run"].returncode == 0


def test_check_says_how_a_run_that_was_stopped_goes_on_when_the_code_fits_again(
    parked: Path, tmp_path: Path
) -> None:
    edited(parked, tmp_path, RENAMED)
    (tmp_path / "agents.py").write_text(ALIASED, encoding="utf-8")
    assert "ninelives resolve ITEM --retry" in command(tmp_path, "check", "agents.py").stderr
