"""Alternatives that are steps themselves: what is declared of them, and what policies say, still counts."""

from __future__ import annotations

from typing import Any

import pytest

import ninelives as nl
from ninelives.core.errors import UsageError
from ninelives.core.governance.verdicts import Deny
from tests.governance.governed import Watching, governed
from tests.models.series import HttpError
from tests.replay.lifetimes import QuickStore, run_async

asked: list[str] = []


@nl.decision(name="as.web", taint="web")
async def web(question: str) -> str:
    asked.append("web")
    return "from the web"


@nl.decision(name="as.web_plain", taint="web")
def web_plain(question: str) -> str:
    asked.append("web")
    return "from the web"


async def last(question: str) -> str:
    return "the last"


async def down(question: str) -> str:
    raise HttpError(503)


def down_plain(question: str) -> str:
    raise HttpError(503)


@nl.action(name="as.act")
async def act(text: str) -> str:
    return text


ask = nl.decision(name="as.ask", alternatives=[web, last], retry=nl.Retry(attempts=1))(down)
ask_plain = nl.decision(name="as.plain", alternatives=[web_plain], retry=nl.Retry(attempts=1))(down_plain)


@nl.agent(name="as.acts")
async def acts() -> str:
    return str(await act(await ask("what?")))


@nl.action(name="as.act_plain")
def act_plain(text: str) -> str:
    return text


@nl.agent(name="as.acts_plain")
def acts_plain() -> str:
    return str(act_plain(ask_plain("what?")))


def performed(agent: Any, policy: Watching) -> Any:
    async def main() -> Any:
        async with governed(QuickStore(), policy) as rt:
            return await rt.run(agent, id="run")

    asked.clear()
    return run_async(main)


@pytest.mark.parametrize("agent", [acts, acts_plain])
def test_the_answer_of_an_alternative_has_its_taint(agent: Any) -> None:
    policy = Watching()
    assert performed(agent, policy) == "from the web"
    assert [call.taint for call in policy.judged if call.action.startswith("as.act")] == [{"web"}]


def test_an_alternative_that_a_policy_denies_is_not_asked_and_the_next_one_is() -> None:
    assert performed(acts, Watching({"as.web": Deny("not the web")})) == "the last"
    assert asked == []


def test_when_all_else_is_denied_the_error_of_the_way_remains() -> None:
    with pytest.raises(nl.RunFailed, match="503"):
        performed(acts_plain, Watching({"as.web_plain": Deny("not the web")}))
    assert asked == []


def test_an_alternative_that_needs_an_approval_is_refused() -> None:
    @nl.action(name="as.approved", reads_only=True, approval=True)
    async def approved(question: str) -> str:
        return question

    with pytest.raises(UsageError, match="needs a person's approval"):
        nl.decision(name="as.asks", alternatives=[approved])(down)
