"""`ninelives budget show`, `set`, `raise`; the metric; and what `ps` says of a run that waits."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import ninelives as nl
from ninelives.cli.app import app
from ninelives.governance.audit_log.entries import switch
from ninelives.ops.metrics.exposition import exposed
from ninelives.ops.metrics.reading import read
from ninelives.ops.retention import Retention, retain
from ninelives.stores.sqlite import SqliteStore

POLICY = """
[policy]
name = "p"
default = "allow"

[[budget]]
name = "tenant-month"
scope = "label:tenant"
per = "month"
on = "wait"
usd = 1
only = ["budgets.order"]
"""


@nl.action(name="budgets.order", cost=0.6)
async def order(number: int) -> int:
    return number


@nl.agent(name="budgets.orders")
async def orders() -> int:
    return await order(1) + await order(2)


class Shop:
    """A store in which a run waits for its tenant's budget."""

    def __init__(self, home: Path) -> None:
        self.path, self.policy = home / "runs.db", home / "policy.toml"
        self.policy.write_text(POLICY, encoding="utf-8")
        with self.store() as store:
            switch(store, on=True)
        self.work()

    def store(self) -> Any:
        from contextlib import closing

        return closing(SqliteStore(self.path))

    def work(self) -> None:
        async def main() -> None:
            async with nl.Runtime(f"sqlite:///{self.path}", policy=self.policy) as rt:
                await rt.start(orders, id="run", labels={"tenant": "acme"})
                await rt.work(until_idle=True)

        asyncio.run(main())

    def call(self, *words: str) -> Result:
        return CliRunner().invoke(app, [*words, "--store", f"sqlite:///{self.path}"], env={"COLUMNS": "200"})

    def json(self, *words: str) -> Any:
        said = self.call(*words, "--json")
        assert said.exit_code == 0, said.output
        return json.loads(said.stdout)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_what_was_spent_is_shown_and_ps_says_what_a_run_waits_for(shop: Shop) -> None:
    said = shop.call("budget", "show")
    assert said.exit_code == 0
    row = said.stdout.splitlines()[1].split()
    assert row[:8] == ["tenant-month", "label", "tenant=acme", "usd", "$0.60", "-", "$1.00", "60%"]
    assert "for budget 'tenant-month' of label tenant=acme" in shop.call("ps").stdout
    assert "for budget 'tenant-month' of label tenant=acme" in shop.call("show", "run").stdout
    found = shop.json("budget", "show", "tenant-month")
    assert [one["name"] for one in found["budgets"]] == ["tenant-month"]
    assert found["accounts"][0]["meters"] == [
        {"meter": "usd", "limit": 1_000_000, "spent": 600_000, "reserved": 0, "is_changed": False}
    ]


def test_a_raise_is_kept_logged_and_lets_the_run_go_on(shop: Shop) -> None:
    why = ("--reason", "a large order", "--by", "ada")
    said = shop.json("budget", "raise", "tenant-month", "acme", "--usd", "0.2", *why)
    assert said["woken"] == ["run"]
    assert said["account"]["meters"][0]["limit"] == 1_200_000
    shop.work()
    with shop.store() as store:
        assert store.read_run("run").state.value == "completed"
        log = b"".join(one.body for one in store.read_documents("auditlog/"))
    assert b"budget changed" in log
    mistyped = shop.call("budget", "raise", "tenant-month", "acmee", "--usd", "2", *why)
    assert (
        "nothing of label tenant=acmee has used this budget yet; is 'acmee' spelled right?" in mistyped.output
    )
    shown = shop.call("budget", "set", "tenant-month", "acme", "--usd", "2", *why)
    assert "spelled right" not in shown.output
    assert "$2.00 (changed)" in shown.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["raise", "tenant-month", "acme", "--usd", "1"], "--reason is ''"),
        (["raise", "tenant-month", "acme", "--usd", "-1", "--reason", "x"], "usd = -1.0"),
        (["raise", "tenant-month", "acme", "--tokens", "1", "--reason", "x"], "does not limit tokens"),
        (["raise", "tenant-month", "--usd", "1", "--reason", "x"], "has the scope"),
        (["raise", "tenant-month", "acme", "--reason", "x"], "no limit is given"),
        (["set", "tenant-day", "acme", "--usd", "1", "--reason", "x"], "There are: tenant-month"),
        (["show", "tenant-day"], "no process has declared a budget 'tenant-day'"),
    ],
)
def test_what_cannot_be_meant_is_refused(shop: Shop, words: list[str], why: str) -> None:
    said = shop.call("budget", *words)
    assert why in (said.output + str(said.exception))
    assert said.exit_code != 0


def test_metrics_name_the_budget_and_no_tenant(shop: Shop) -> None:
    with shop.store() as store:
        text = exposed(read(store), "", "")[0].decode()
    assert 'ninelives_budget_used_ratio{budget="tenant-month",meter="usd",scope="label"} 0.6' in text
    assert "acme" not in text


def test_retention_says_how_many_accounts_it_removed(shop: Shop) -> None:
    wanted = Retention(keep_ms=10**12, agents={}, forget_ms=None, log_ms=10**12)
    with shop.store() as store:
        store.write_document("budget/tenant-month/2020-01/label:tenant=acme", b"{}", version=0)
        store.write_document("budget/minutes/2020-01-01T10:00/store", b"{}", version=0)
        # Changed just now: a call may still settle in them.
        assert retain(store, wanted).accounts == 0
        assert len(store.read_documents("budget/")) == 3
