"""Runs whose questions are compared by meaning: asked and compared first, served once a bound permits it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.errors import UsageError
from ninelives.core.journal.replay import read_body
from ninelives.core.model.run import Kind
from ninelives.models import entries
from ninelives.models import report as cache_report
from tests.cache.test_hits import lives
from tests.replay.lifetimes import QuickStore, run_async

asked: list[str] = []
ANSWERS = {"password": "settings", "invoice": "mail"}
VECTORS = {"password": [1.0, 0.0], "invoice": [0.0, 1.0]}


@pytest.fixture(autouse=True)
def nobody_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked.clear()
    monkeypatch.setattr(random, "random", lambda: 0.9)  # nothing is explored


def subject(text: str) -> str:
    return next(one for one in ANSWERS if one in text)


def embed(texts: list[str]) -> list[list[float]]:
    return [VECTORS[subject(text)] for text in texts]


def away(texts: list[str]) -> list[list[float]]:
    raise ConnectionError("no embedder answers")


def cache(**known: Any) -> nl.Cache:
    near = nl.Meaning(**{"embed": embed, "max_error": 0.3, "guards": False, **known})
    return nl.Cache(ttl=3600, scope=("tenant",), near=near, leads_to_effects=False)


async def answer(question: str) -> str:
    asked.append(question)
    return ANSWERS[subject(question)]


ask = nl.decision(name="m_ask", cache=cache())(answer)
wrong = nl.decision(name="m_wrong", cache=cache(same=lambda one, other: False))(answer)
failing = nl.decision(name="m_failing", cache=cache(embed=away))(answer)


async def embed_async(texts: list[str]) -> list[list[float]]:
    await asyncio.sleep(0)
    return embed(texts)


async def same_async(one: str, other: str) -> bool:
    await asyncio.sleep(0)
    return one == other


guarded = nl.decision(name="m_guarded", cache=cache(guards=True))(answer)
ask_async = nl.decision(name="m_async", cache=cache(embed=embed_async, same=same_async))(answer)


STEPS: dict[str, Any] = {
    "m_ask": ask,
    "m_wrong": wrong,
    "m_failing": failing,
    "m_async": ask_async,
    "m_guarded": guarded,
}


@nl.agent(name="m_asks")
async def asks(step: str, question: str) -> str:
    return str(await STEPS[step](question))


WAYS = (
    "forgot",
    "changed",
    "lost",
    "need",
    "want",
    "mistyped",
    "reset",
    "renewed",
    "missed",
    "wrote",
    "sent",
)
PARAPHRASES = [f"I {way} my password{end}" for end in (" again", " twice", " and wait") for way in WAYS][:26]


def asks_each(store: Any, step: str, questions: list[str], tenant: str = "acme") -> list[str]:
    """Ask each question in a run of its own; return how each was answered: "" is by the model."""

    async def main() -> list[str]:
        found = []
        for number, question in enumerate(questions):
            async with nl.Runtime(store) as rt:
                run = f"{tenant} {step} {len(asked)} {number} {question}"[:200]
                started = await rt.start(asks, step, question, id=run, labels={"tenant": tenant})
                await rt.work(until_idle=True)
                assert await started.result(timeout=10) == ANSWERS[subject(question)]
            records = store.load_journal(run, since=0).records
            (body,) = [read_body(one) for one in records if one.kind is Kind.RESULT]
            found.append(body.m.cache if body.m is not None else "none")
        return found

    return run_async(main)


def notes(store: Any) -> list[str]:
    return [one.name for one in store.read_documents("cache/") if "/meaning/" in one.name]


@pytest.mark.parametrize("step", ["m_ask", "m_async"])
def test_it_asks_and_compares_until_the_bound_permits_serving(step: str) -> None:
    store = QuickStore()
    found = asks_each(store, step, PARAPHRASES)
    first = found.index("meaning")
    # In the shadow at first: the answers are there, and the model is asked all the same.
    assert found[:first] == [""] * first
    assert first >= 10
    assert len(asked) == found.count("")
    assert "meaning" in found[first:]
    # What was never compared is asked: another subject, and another tenant.
    assert asks_each(store, step, ["Where is my invoice now?"]) == [""]
    assert asks_each(store, step, PARAPHRASES[:2], tenant="other") == ["", ""]


def test_where_comparisons_say_wrong_nothing_is_ever_served() -> None:
    store = QuickStore()
    assert "meaning" not in asks_each(store, "m_wrong", PARAPHRASES)


def test_a_share_of_what_may_be_served_is_asked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    store = QuickStore()
    first = asks_each(store, "m_ask", PARAPHRASES[:24])
    assert first[-1] == "meaning"
    monkeypatch.setattr(random, "random", lambda: 0.0)
    assert asks_each(store, "m_ask", PARAPHRASES[24:]) == ["", ""]


def test_a_guard_vetoes_whatever_the_vectors_say() -> None:
    store, texts = QuickStore(), ["How do I reset my password?", "How do I not reset my password?"]
    assert asks_each(store, "m_guarded", texts) == ["", ""]
    assert cache_report.report(store).steps[0].compared == 0
    assert asks_each(store, "m_ask", texts) == ["", ""]
    assert cache_report.report(store, "m_ask").steps[0].compared == 1


def test_an_embedder_that_fails_is_a_miss_and_its_answer_is_kept() -> None:
    store = QuickStore()
    assert asks_each(store, "m_failing", PARAPHRASES[:1] * 2) == ["", "exact"]
    assert notes(store) == []


def test_an_answer_that_was_cleared_is_no_longer_served() -> None:
    store = QuickStore()
    assert "meaning" in asks_each(store, "m_ask", PARAPHRASES[:24])
    for kept in list(entries.answers(store)):
        store.write_document(kept.name, None, version=kept.version)
    assert asks_each(store, "m_ask", PARAPHRASES[24:25]) == [""]


def test_what_is_served_leads_to_no_effects_either() -> None:
    @nl.action(name="m_send")
    async def send(text: str) -> str:
        return text

    @nl.agent(name="m_acts")
    async def acts(question: str) -> str:
        text = await ask(question)
        try:
            return str(await send(text))
        except nl.Denied as no:
            return no.what

    store = QuickStore()
    assert "meaning" in asks_each(store, "m_ask", PARAPHRASES[:24])
    said = lives(store, acts, PARAPHRASES[24], id="acts", labels={"tenant": "acme"})
    assert "lead to no effects: answer " in said


def test_it_must_say_whether_its_answers_lead_to_effects() -> None:
    with pytest.raises(UsageError, match="near='meaning' must say"):
        nl.Cache(ttl=5, near=nl.Meaning(embed))
