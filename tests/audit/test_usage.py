"""What models were used for: tokens and money, grouped, against what the agents really had."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ninelives.core.errors import UsageError
from ninelives.core.values.token_usage import Usage
from ninelives.governance.budgets.prices import price_list
from tests.audit.test_savings import ran

AGENTS = """
import ninelives as nl

@nl.decision
async def think(number: int) -> dict:
    usage = {"input_tokens": 100, "cache_read_input_tokens": 50, "output_tokens": 10}
    return {"model": "our-large", "usage": usage}

@nl.decision
async def classify(text: str) -> str:
    nl.charge(tokens_in=30, tokens_out=5, model="our-small")
    return "refund"

@nl.action
async def embed(text: str) -> int:
    nl.charge(tokens=7, usd=0.25)
    raise nl.Permanent("the index is gone")

@nl.agent
async def child(n: int) -> int:
    await think(n)
    return n

@nl.agent
async def parent() -> str:
    for number in range(3):
        await think(number)
    await (await nl.spawn(child, 1)).result()
    try:
        await embed("x")
    except nl.Permanent:
        pass
    return await classify("x")
"""
PRICES = """
[[price]]
model = "our-large"
input = 2.00
output = 10.00
cached = 1.00

[[price]]
model = "our-*"
input = 1
output = 1
"""


@pytest.fixture
def worked(tmp_path: Path) -> Path:
    (tmp_path / "agents.py").write_text(AGENTS)
    (tmp_path / "prices.toml").write_text(PRICES)
    done = ran("run", "agents.py:parent", "--id", "p", home=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def used(home: Path, *words: str) -> dict[str, Any]:
    done = ran("usage", "--json", "--prices", "prices.toml", *words, home=home)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_tokens_and_money_are_those_of_the_calls_in_each_grouping(worked: Path) -> None:
    large = (100 * 2 + 50 * 1 + 10 * 10) / 1e6
    small = 35 / 1e6
    by_model = {one["name"]: one for one in used(worked, "--by", "model")["groups"]}
    assert by_model["our-large"] == {
        "name": "our-large",
        "calls": 4,
        "tokens_in": 600,
        "tokens_out": 40,
        "cached": 200,
        "usd": pytest.approx(4 * large),
        "unpriced_tokens": 0,
    }
    assert by_model["our-small"]["usd"] == pytest.approx(small)
    assert (by_model[""]["tokens_in"], by_model[""]["usd"]) == (7, 0.25)
    whole = pytest.approx(4 * large + small + 0.25)
    assert used(worked)["total"]["usd"] == whole
    agents = {one["name"]: one["usd"] for one in used(worked, "--by", "agent")["groups"]}
    assert agents == {"child": pytest.approx(large), "parent": pytest.approx(3 * large + small + 0.25)}
    steps = {one["name"]: one["calls"] for one in used(worked, "--by", "step")["groups"]}
    assert steps == {"think": 4, "classify": 1, "embed": 1}
    (tree,) = used(worked, "--by", "tree")["groups"]
    assert (tree["name"], tree["calls"], tree["usd"]) == ("p", 6, whole)
    assert used(worked, "p")["total"]["calls"] == 6
    (day,) = used(worked, "--by", "day")["groups"]
    assert day["calls"] == 6


def test_a_pruned_journal_keeps_its_tokens(worked: Path) -> None:
    assert ran("store", "prune", "--ended", "0s", home=worked).returncode == 0
    found = used(worked, "--by", "model")
    (group,) = found["groups"]
    assert (group["name"], group["tokens_in"], group["tokens_out"]) == ("", 637, 45)


def test_a_run_that_is_replayed_counts_nothing_twice(worked: Path) -> None:
    before = used(worked)["total"]
    ran("run", "agents.py:parent", "--id", "p", home=worked)
    assert used(worked)["total"] == before


def test_groups_by_a_label_without_a_name_are_refused(worked: Path) -> None:
    assert "--by 'label:'" in ran("usage", "--by", "label:", home=worked).stderr


def test_a_table_says_what_has_no_price(worked: Path) -> None:
    (worked / "prices.toml").write_text('[[price]]\nmodel = "our-large"\ninput = 1\noutput = 1\n')
    done = ran("usage", "--prices", "prices.toml", "--by", "model", home=worked)
    assert "our-small" in done.stdout
    assert "35 tokens have no price" in done.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[price]]\nmodel = 'm'\ninput = 1\n", "output"),
        ("[[price]]\nmodel = 'm'\ninput = 1\noutput = 1\nper = 2\n", "per"),
        ("[[price]]\nmodel = 'm'\ninput = -1\noutput = 1\n", "input = -1"),
        ("[[price]]\nmodel = 'm'\ninput = 1\noutput = 1\ncached = nan\n", "cached = NaN"),
        ("[[prices]]\nmodel = 'm'\n", "prices"),
        ("model = ", "Invalid value"),
    ],
)
def test_a_price_list_that_is_not_exactly_right_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "prices.toml").write_text(text)
    with pytest.raises(UsageError, match=why):
        price_list(str(tmp_path / "prices.toml"))


def test_a_function_may_be_the_price_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "contract.py").write_text(
        "def price(usage):\n    return usage.tokens * 0.001 if usage.model == 'ours' else None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    price = price_list("contract:price")
    assert price is not None
    assert price(Usage(10, 5, "ours")) == Decimal("0.015")
    assert price(Usage(10, 5, "no-such-model-anywhere")) is None
    with pytest.raises(UsageError, match="cannot be loaded"):
        price_list("contract:no_such_function")


MONEY = """
import ninelives as nl

@nl.action
async def draw(text: str) -> str:
    nl.charge(usd=0.25)
    return text

@nl.decision(cache=nl.Cache(ttl=60))
async def ask(text: str) -> str:
    nl.charge(usd=0.5)
    return text

@nl.agent
async def draws() -> str:
    return await draw(await ask("x"))
"""


def test_money_without_tokens_counts_and_a_cached_answer_does_not(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(MONEY)
    (tmp_path / "prices.toml").write_text(PRICES)
    for run in ("one", "two"):
        done = ran("run", "agents.py:draws", "--id", run, home=tmp_path)
        assert done.returncode == 0, done.stderr
    steps = {one["name"]: (one["calls"], one["usd"]) for one in used(tmp_path, "--by", "step")["groups"]}
    assert steps == {"ask": (1, 0.5), "draw": (2, 0.5)}
