"""`ninelives approve --sign`, signing elsewhere in two steps, and `ninelives approvers check`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ninelives as nl
from ninelives.governance.approvers.approvers import Approvers, check
from ninelives.stores.sqlite import SqliteStore
from tests.governance.keys import SshKey, ssh_keygen
from tests.replay.lifetimes import run_async


def ninelives(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the store in that directory."""
    command = [sys.executable, "-m", "ninelives", *words]
    return subprocess.run(command, cwd=home, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def office(tmp_path: Path) -> Path:
    """Return a directory with a store in which a run waits for a role, a file of approvers, and a key."""

    @nl.action(name="refund", approval=nl.Approval(to="role:ops"))
    async def refund(order: str) -> str:
        return order

    @nl.agent(name="support")
    async def support(order: str) -> str:
        return await refund(order)

    async def begin() -> None:
        async with nl.Runtime(f"sqlite:///{tmp_path}/.ninelives/runs.db") as rt:
            await rt.start(support, "o-7", id="s-7")
            await rt.work(until_idle=True)

    run_async(begin)
    key = SshKey(tmp_path, "ada")
    key.file.rename(tmp_path / "ada")
    (tmp_path / "approvers.toml").write_text(
        f'[[person]]\nname = "ada"\nroles = ["ops"]\nkeys = ["{key.public}"]\n'
    )
    return tmp_path


def why(home: Path) -> str | None:
    """Return why the answer that the store now has does not count."""
    store = SqliteStore(home / ".ninelives/runs.db")
    approvers = Approvers(check({"file": "approvers.toml"}, home), store.now_ms)
    approvers.refresh(store)
    (item,) = store.list_inbox(answered=True)
    found = approvers.refuses_answer(item, to=item.to)
    store.close()
    return found


def test_an_answer_is_signed_by_the_command(office: Path) -> None:
    ran = ninelives(office, "approve", "s-7", "--by", "ada", "--note", "ok", "--key", "ada")
    assert (ran.returncode, ran.stdout[:15]) == (0, "approved by ada"), ran.stderr
    assert "not signed" not in ran.stderr
    assert "a worker verifies the signature" in ran.stderr
    assert why(office) is None


def test_an_answer_to_a_role_that_is_not_signed_says_so(office: Path) -> None:
    ran = ninelives(office, "approve", "s-7", "--by", "ada")
    assert (ran.returncode, "note: it is not signed" in ran.stderr) == (0, True)


def test_the_command_that_is_shown_signs_an_answer_to_a_role(office: Path) -> None:
    said = ninelives(office, "inbox").stdout
    assert re.search(r"ninelives approve \w+ --sign \| ninelives deny \w+ --note WHY --sign$", said.strip())


def test_an_answer_is_signed_elsewhere_in_two_steps(office: Path) -> None:
    asked = ninelives(office, "deny", "s-7", "--by", "ada", "--note", "too much", "--print-request")
    assert json.loads(asked.stdout)["arguments"] == {"order": "o-7"}
    (office / "request").write_text(asked.stdout)
    sign = [ssh_keygen(), "-Y", "sign", "-q", "-n", "ninelives", "-f", "ada", "request"]
    subprocess.run(sign, cwd=office, check=True, timeout=60)
    other = ninelives(office, "approve", "s-7", "--signature", "request.sig")
    assert (other.returncode, "says denied, not approved" in other.stderr) == (2, True)
    (office / "changed").write_text(asked.stdout.replace("o-7", "o-8"))
    changed = ninelives(office, "deny", "s-7", "--signature", "request.sig", "--request", "changed")
    assert (changed.returncode, "is not the request for inbox item" in changed.stderr) == (2, True)
    ran = ninelives(office, "deny", "s-7", "--signature", "request.sig", "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["answer"]["signed"]["signature"]
    assert why(office) is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--key", "none"), "ssh-keygen could not sign with none"),
        (("--sign", "--print-request"), "three ways to sign"),
        (("--request", "r"), "--request goes with --signature"),
        (("--signature", "r"), "does not end with .sig"),
        (("--signature", "r.sig"), "r cannot be read"),
        (("--signature", "approvers.toml", "--request", "approvers.toml"), "is no request"),
        (("--sign", "--valid", "0s"), "--valid 0s"),
        (("--sign", "--valid", "soon"), "'soon' is not an age"),
    ],
)
def test_what_cannot_be_signed_is_refused_and_answers_nothing(
    office: Path, words: tuple[str, ...], says: str
) -> None:
    ran = ninelives(office, "approve", "s-7", *words)
    assert ran.returncode == 2
    assert says in ran.stderr
    assert ninelives(office, "inbox").stdout.count("approve s-7") <= 1
    assert "no open" not in ninelives(office, "inbox").stderr


def test_a_file_of_approvers_is_checked(office: Path) -> None:
    ran = ninelives(office, "approvers", "check", "approvers.toml")
    assert ran.stdout.split() == ["PERSON", "ROLES", "KEYS", "ada", "ops", "1"]
    (person,) = json.loads(ninelives(office, "approvers", "check", "approvers.toml", "--json").stdout)[
        "people"
    ]
    assert person["keys"][0].startswith("ssh-ed25519 ")
    (office / "approvers.toml").write_text("[[person]]\nname = 1\n")
    ran = ninelives(office, "approvers", "check", "approvers.toml")
    assert (ran.returncode, "person[0].name" in ran.stderr) == (2, True)
