"""Stock tools between and beside the lives of a store: it goes on as if they had not been there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash import stock
from tests.crash.campaign import CHECK, LIVE, Campaign
from tests.crash.forkserver import ForkServer


def test_a_killed_store_goes_on_after_any_stock_tool(server: ForkServer) -> None:
    tally = Campaign(server, seed=1).among_tools(40)
    assert tally.violations == []
    assert tally.kills >= 40


@pytest.mark.parametrize("number", range(len(stock.BETWEEN)), ids=[tool.__name__ for tool in stock.BETWEEN])
def test_each_tool_may_be_used_after_a_kill(server: ForkServer, home: Path, number: int) -> None:
    life: dict[str, Any] = {"home": str(home), "seed": 4, "runs": 2}
    death = server.run(LIVE, point={"call": 25, "side": "after"}, **life)
    assert death.was_killed
    assert server.run("tests.crash.stock:use", home=str(home), number=number).code == 0
    assert server.run(LIVE, **life).code == 0
    assert server.run(CHECK, home=str(home)).result() == []
