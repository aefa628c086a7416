"""`ninelives policy check`, `test`, `show` and `try`, as a person types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ninelives.governance.policy.combined import open_policies
from ninelives.governance.policy.kept import keep
from ninelives.stores.sqlite import SqliteStore
from tests.governance.keys import SshKey

AGENTS = """
from dataclasses import dataclass
import ninelives as nl

@dataclass
class Order:
    id: str
    cents: int

@nl.action(resumable=False)
async def refund(order: Order, note: str = "") -> str:
    return "done"

@nl.action(reads_only=True)
async def search(words: str) -> str:
    return words

@nl.decision
async def think(prompt: str) -> str:
    return prompt

@nl.action
async def pay(to: str, cents: int) -> str:
    return "paid"

@nl.agent
async def child(cents: int) -> str:
    return await pay("bob", cents)

@nl.agent
async def shop(cents: int) -> str:
    await search("shoes")
    await think("x" * 200)
    await pay("ada", cents)
    await refund(Order("o-1", cents))
    await (await nl.spawn(child, cents + 1)).result()
    return "ok"
"""
POLICY = """
[policy]
name = "shop"
default = "deny"

[[rule]]
id = "looks"
actions = ["*"]
kinds = ["decision", "read", "spawn"]
do = "allow"

[[rule]]
id = "small-payments"
actions = ["pay"]
when = "cents <= 1_000"
do = "allow"

[[rule]]
id = "large-payments"
actions = ["pay"]
when = "cents > 1_000"
do = "ask"
to = "role:ops"

[[rule]]
id = "small-refunds"
actions = ["refund"]
when = "order.cents <= 1_000"
do = "allow"

[[test]]
name = "a small payment"
call = "pay"
args = { to = "ada", cents = 5 }
expect = "allow"
rules = ["small-payments"]

[[test]]
name = "a large one"
call = "pay"
args = { to = "ada", cents = 5_000 }
expect = "ask"
to = "role:ops"

[[test]]
name = "a refund of too much"
call = "refund"
args = { order = { id = "o-1", cents = 2_000 } }
expect = "deny"
"""
WORDS = "'order' is in the journal in words for people only"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "agents.py").write_text(AGENTS, encoding="utf-8")
    (tmp_path / "shop.toml").write_text(POLICY, encoding="utf-8")
    return tmp_path


def ninelives(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command with no terminal, in that directory."""
    command = [sys.executable, "-m", "ninelives", *words]
    return subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=60, check=False)


def edit(home: Path, old: str, new: str) -> None:
    text = (home / "shop.toml").read_text(encoding="utf-8")
    assert old in text
    (home / "shop.toml").write_text(text.replace(old, new), encoding="utf-8")


def add(home: Path, text: str) -> None:
    (home / "shop.toml").write_text((home / "shop.toml").read_text("utf-8") + text, encoding="utf-8")


def test_check_finds_a_sound_file_sound(home: Path) -> None:
    ran = ninelives(home, "policy", "check", "shop.toml", "agents.py")
    assert (ran.returncode, ran.stdout.count("note: ")) == (0, 1)
    assert "a process starts with it only where NINELIVES_APPROVERS names one" in ran.stdout
    assert "shop.toml is sound: 4 rules, default deny" in ran.stderr
    found = json.loads(ninelives(home, "policy", "check", "shop.toml", "agents.py", "--json").stdout)
    assert (found["sound"], found["checked"], found["rules"], found["faults"]) == (
        True,
        "names and types",
        4,
        [],
    )
    formal = ninelives(home, "policy", "check", "shop.toml")
    assert formal.returncode == 0
    assert "only its form was checked" in formal.stderr


def test_check_lists_every_fault_with_its_line_and_remedy(home: Path) -> None:
    edit(home, "cents <= 1_000", "cent <= 1_000")
    edit(home, 'actions = ["refund"]', 'actions = ["refnd"]')
    add(home, '[[bugdet]]\nname = "x"\n')
    ran = ninelives(home, "policy", "check", "shop.toml", "agents.py")
    assert ran.returncode == 1
    assert "fault: shop.toml:15: rule 'small-payments': 'cent' is no argument of 'pay'" in ran.stdout
    assert "fault: shop.toml:27: rule 'small-refunds': no action is named 'refnd'" in ran.stdout
    assert "unknown table 'bugdet'\n    Did you mean 'budget'?" in ran.stdout
    assert "3 faults" in ran.stderr
    found = json.loads(ninelives(home, "policy", "check", "shop.toml", "agents.py", "--json").stdout)
    assert [bool(one["remedy"]) for one in found["faults"]] == [True, True, True]
    assert ninelives(home, "policy", "test", "shop.toml", "agents.py").returncode == 2
    edit(home, "cents > 1_000", "cents >")
    assert "it is not an expression" in ninelives(home, "policy", "check", "shop.toml").stdout


def test_check_finds_a_role_that_no_approver_has(home: Path) -> None:
    add(home, '[approvers]\nfile = "approvers.toml"\n')
    public = SshKey(home, "ada").public
    person = f'[[person]]\nname = "ada"\nroles = ["finance"]\nkeys = ["{public}"]\n'
    (home / "approvers.toml").write_text(person)
    ran = ninelives(home, "policy", "check", "shop.toml", "agents.py")
    assert (ran.returncode, "no approver has that role" in ran.stdout) == (1, True), ran.stdout


def test_check_notes_what_may_not_be_meant(home: Path) -> None:
    extra = '\n[[rule]]\nid = "never"\nactions = ["pay"]\ndo = "deny"\n'
    extra += '[[rule]]\nid = "one"\nactions = ["refund"]\ndo = "ask"\nto = "a"\n'
    extra += '[[rule]]\nid = "other"\nactions = ["refund"]\ndo = "ask"\nto = "b"\n'
    add(home, extra)
    edit(home, 'kinds = ["decision", "read", "spawn"]', 'kinds = ["decision", "read"]')
    ran = ninelives(home, "policy", "check", "shop.toml", "agents.py")
    assert ran.returncode == 0
    assert "rule 'small-payments' never decides: never is stricter and always applies" in ran.stdout
    assert "rules ask different people about 'refund'" in ran.stdout
    assert "no rule names 'child' (spawn): it gets, as a child, the default, deny" in ran.stdout


TABLES = """
[[budget]]
name = "b"
scope = "run"
actions = 50
only = ["ship"]
[[limit]]
id = "rate"
actions = ["ship"]
per_minute = 60
[[breaker]]
actions = ["ship"]
[[trip]]
id = "t"
when = "failures > 5 in 1m"
halt = "action"
actions = ["ship"]
"""


def test_tables_may_name_what_other_processes_declare_and_their_form_is_checked_alone(home: Path) -> None:
    add(home, TABLES)
    ran = ninelives(home, "policy", "check", "shop.toml", "agents.py")
    assert (ran.returncode, ran.stdout.count("fault: ")) == (1, 4), ran.stdout
    assert ran.stdout.count('add it to elsewhere = ["..."] of [policy]') == 4
    formal = ninelives(home, "policy", "check", "shop.toml")
    assert formal.returncode == 0, "no module was named: what steps there are is not known"
    edit(home, 'default = "deny"', 'default = "deny"\nelsewhere = ["ship"]')
    ran = ninelives(home, "policy", "check", "shop.toml", "agents.py")
    assert ran.returncode == 0, ran.stdout
    assert "sound: 4 rules, 1 budget, 1 limit, 1 breaker, 1 trip, default deny" in ran.stderr


def test_check_notes_labels_that_no_step_declares(home: Path) -> None:
    agents = home / "agents.py"
    agents.write_text(AGENTS.replace("reads_only=True", 'reads_only=True, taint="web"'), encoding="utf-8")
    rule = '\n[[rule]]\nid = "{0}"\nactions = ["pay"]\nwhen = "{1}"\ndo = "deny"\n'
    add(home, rule.format("right", "tainted('web') or 'web' in taint"))
    assert "asks for the label" not in ninelives(home, "policy", "check", "shop.toml", "agents.py").stdout
    add(home, rule.format("wrong", "tainted('wbe') or 'mail' not in taint"))
    said = ninelives(home, "policy", "check", "shop.toml", "agents.py").stdout
    assert (
        "'wrong' asks for the label 'wbe', and no step declares taint='wbe'\n    Did you mean 'web'?" in said
    )
    assert "the label 'mail'" in said


def test_a_name_that_a_step_had_before_is_known_to_check_and_to_try(home: Path) -> None:
    url = f"sqlite:///{home}/runs.db"
    assert ninelives(home, "run", "agents.py:shop", "500", "--store", url).returncode == 0
    renamed = AGENTS.replace("@nl.action\nasync def pay", '@nl.action(aliases=["pay"])\nasync def transfer')
    (home / "agents.py").write_text(renamed.replace("await pay", "await transfer"), encoding="utf-8")
    assert "It is 'transfer' now" in ninelives(home, "policy", "check", "shop.toml", "agents.py").stdout
    edit(home, '"pay"', '"transfer"')
    command = ("policy", "try", "shop.toml", "agents.py", "--store", url, "--json")
    found = json.loads(ninelives(home, *command).stdout)
    assert not [why for why in found["reasons"] if "declares no" in why]


def test_the_tests_of_a_file_are_run(home: Path) -> None:
    ran = ninelives(home, "policy", "test", "shop.toml", "agents.py", "--all")
    assert ran.returncode == 0
    assert "3 of 3 tests passed" in ran.stderr
    assert "a refund of too much  refund  deny" in ran.stdout
    edit(home, "cents > 1_000", "cents > 10_000")
    ran = ninelives(home, "policy", "test", "shop.toml", "agents.py")
    assert ran.returncode == 1
    assert "expected ask, found deny" in ran.stdout
    assert "a small payment" not in ran.stdout
    found = json.loads(ninelives(home, "policy", "test", "shop.toml", "agents.py", "--json").stdout)
    assert (found["passed"], found["failed"], found["tests"][1]["found"]) == (2, 1, "deny")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('call = "refund"', 'call = "refnd"', "Did you mean 'refund'?"),
        ('expect = "deny"', 'expect = "denied"', "Did you mean 'deny'?"),
        ("cents = 2_000", 'cents = "2"', "does not fit 'refund'"),
        ("cents = 5 }", "cent = 5 }", "'cent' is no argument of 'pay'"),
        ('to = "ada", cents = 5 }', "cents = 5 }", "'pay' needs to"),
        ('expect = "deny"', 'expects = "deny"', "unknown field `expects`"),
    ],
)
def test_a_test_that_is_not_written_rightly_is_a_fault(home: Path, old: str, new: str, why: str) -> None:
    edit(home, old, new)
    assert why in ninelives(home, "policy", "check", "shop.toml", "agents.py").stdout
    ran = ninelives(home, "policy", "test", "shop.toml", "agents.py")
    assert ran.returncode == 2
    assert why in ran.stderr


def test_show_prints_the_rules_strictest_first(home: Path) -> None:
    ran = ninelives(home, "policy", "show", "shop.toml")
    assert ran.stdout.splitlines()[1].split()[:2] == ["large-payments", "ask"]
    assert json.loads(ninelives(home, "policy", "show", "shop.toml", "--json").stdout)["rules"][1]["when"]
    assert ninelives(home, "policy", "show", "shop.toml", "--text").stdout == POLICY


def test_show_prints_the_policies_that_the_store_keeps(home: Path) -> None:
    url = f"sqlite:///{home}/runs.db"
    store = SqliteStore(home / "runs.db")
    file = open_policies('[policy]\nname = "kept"\ndefault = "deny"\n', [])
    both = open_policies([file.text, lambda _: None], [])
    for _ in range(2):
        keep(store, file)
        keep(store, both)
    store.close()
    listed = json.loads(ninelives(home, "policy", "show", "--json", "--store", url).stdout)
    assert {one["digest"] for one in listed} == {both.digest, *(one.digest for one in both.members)}
    assert ninelives(home, "policy", "show", "--store", url).stdout.count("\n") == 4
    ran = ninelives(home, "policy", "show", file.digest[:12], "--store", url, "--text")
    assert ran.stdout == file.text
    assert "policy kept" in ninelives(home, "policy", "show", file.digest, "--store", url).stderr
    joined = ninelives(home, "policy", "show", both.digest, "--store", url).stdout.split()
    assert joined == [one.digest for one in both.members]
    assert ninelives(home, "policy", "show", "0000", "--store", url).returncode == 2


def test_try_judges_what_was_done_and_says_what_it_cannot_judge(home: Path) -> None:
    url = f"sqlite:///{home}/runs.db"
    for cents in ("500", "5000"):
        done = ninelives(home, "run", "agents.py:shop", cents, "--id", f"run-{cents}", "--store", url)
        assert done.returncode == 0, done.stderr
    command = ("policy", "try", "shop.toml", "agents.py", "--store", url)
    found = json.loads(ninelives(home, *command, "--json").stdout)
    # Each run: search, think, pay, refund, the spawn, and the child's pay.
    assert (found["runs"], found["calls"]) == (4, 12)
    assert found["changed"] == {"allow to ask": 2}
    assert {(one["action"], one["would"]) for one in found["changes"]} == {("pay", "ask")}
    assert {one["run"].partition("/")[0] for one in found["changes"]} >= {"run-5000"}
    # What an Order was is not known from the journal: a rule over it cannot be judged, and is no allow.
    assert found["not_judged_count"] == 2
    assert list(found["reasons"]) == ["the argument 'order' was not stored: " + WORDS]
    assert found["unchanged"] == 8, "a rule that reads no argument judges a call whose arguments were cut"
    shown = ninelives(home, *command)
    assert "allow  ask       large-payments" in shown.stdout
    assert "2 could not be judged" in shown.stderr
    edit(home, "cents > 1_000", "to == 'ada' and cents > 1_000")
    found = json.loads(ninelives(home, *command, "--json").stdout)
    assert found["changed"] == {"allow to ask": 1, "allow to deny": 1}
    (home / "agents.py").write_text(AGENTS.replace("async def think", "async def thinks")
                                    .replace("await think", "await thinks"), encoding="utf-8")  # fmt: skip
    found = json.loads(ninelives(home, *command, "--json").stdout)
    assert found["reasons"]["this code declares no decision 'think'"] == 2
    assert json.loads(ninelives(home, *command, "--since", "0s", "--json").stdout)["calls"] == 0
