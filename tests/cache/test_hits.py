"""Runs that are answered from the cache: what is a hit, that it is copied, and what it costs and saves."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ninelives as nl
from ninelives.core.errors import UsageError
from ninelives.core.journal.replay import Replay, paid_tokens, read_body
from ninelives.core.model.run import Kind
from ninelives.core.model_calls import cached_answer
from ninelives.engine import hooks
from ninelives.engine.hooks import BodyEnded, Observer, StepReplayed
from ninelives.models import entries
from ninelives.models import report as cache_report
from ninelives.models.cache import MOST_WAITING, AnswerCache, Keeper
from ninelives.views import records_text
from tests.governance.test_budget_runs import Scene
from tests.replay.lifetimes import QuickStore, Stage, first_life, run_async, second_life

DAY = 86_400
asked: list[str] = []


@pytest.fixture(autouse=True)
def nobody_was_asked() -> None:
    asked.clear()


class Answer(msgspec.Struct):
    """An answer as providers give it."""

    text: str
    usage: dict[str, int]
    model: str = "m-1"


def answer_to(question: str) -> Answer:
    asked.append(question)
    return Answer(f"{len(asked)}: {question}", {"prompt_tokens": 30, "completion_tokens": 12})


@nl.decision(name="c_ask", cache=nl.Cache(ttl=DAY))
async def ask(question: str) -> Answer:
    return answer_to(question)


@nl.decision(name="c_words", cache=nl.Cache(ttl=DAY, near="words", leads_to_effects=False))
async def ask_words(question: str) -> Answer:
    return answer_to(question)


@nl.decision(name="c_tenant", cache=nl.Cache(ttl=DAY, scope=("tenant",)))
async def ask_of_tenant(question: str) -> Answer:
    return answer_to(question)


@nl.action(name="c_plain", reads_only=True, cache=nl.Cache(ttl=timedelta(days=1)))
def ask_plain(question: str) -> str:
    return answer_to(question).text


@nl.decision(name="c_hedged", hedge=nl.Hedge(after=9.0), cache=nl.Cache(ttl=DAY))
async def ask_hedged(question: str) -> Answer:
    return answer_to(question)


STEPS: dict[str, Any] = {
    "c_hedged": ask_hedged,
    "c_ask": ask,
    "c_words": ask_words,
    "c_tenant": ask_of_tenant,
}


@nl.agent(name="c_asks")
async def asks(step: str, question: str) -> str:
    answer: Answer = await STEPS[step](question)
    return answer.text


@nl.agent(name="c_asks_plain")
def asks_plain(question: str) -> str:
    return ask_plain(question)


def lives(store: Any, agent: Any, *args: Any, id: str, **how: Any) -> Any:
    """Execute one run in a runtime of its own; when it ends, its answers are kept."""

    async def main() -> Any:
        async with nl.Runtime(store) as rt:
            run = await rt.start(agent, *args, id=id, **how)
            await rt.work(until_idle=True)
            return await run.result(timeout=10)

    return run_async(main)


def answered(store: Any, run: str) -> Any:
    """Return how the last step of a run was answered, by its journal."""
    records = store.load_journal(run, since=0).records
    return read_body([one for one in records if one.kind is Kind.RESULT][-1])


def test_a_second_run_is_answered_from_the_cache_and_its_journal_says_from_where() -> None:
    store = QuickStore()
    first = lives(store, asks, "c_ask", "What is it?", id="one")
    assert lives(store, asks, "c_ask", "What is it?", id="two") == first
    assert asked == ["What is it?"]
    own, copied = answered(store, "one"), answered(store, "two")
    assert own.m.cache == ""
    assert (copied.m.cache, copied.m.ways, bytes(copied.v)) == ("exact", 0, bytes(own.v))
    origin = copied.m.origin
    assert (origin.run, origin.step, origin.at_ms) == ("one", "#c_ask#0", origin.at_ms)
    assert own.usage.tokens_in == 30
    assert (copied.usage, origin.usage.tokens_out) == (None, 12)
    row = store.read_run("two")
    assert row is not None
    assert row.tokens_in == 0


def test_plain_functions_and_agents_are_cached_too() -> None:
    store = QuickStore()
    assert lives(store, asks_plain, "What is it?", id="one") == lives(
        store, asks_plain, "What is it?", id="two"
    )
    assert len(asked) == 1


def test_a_pipelined_run_keeps_its_answer_once_that_is_durable() -> None:
    @nl.agent(name="c_pipelined", durability="pipelined")
    async def pipelined() -> str:
        found = await asyncio.gather(ask("What is it?"), ask("What else?"))
        return " ".join(one.text for one in found)

    store = QuickStore()
    first = lives(store, pipelined, id="one")
    assert lives(store, pipelined, id="two") == first
    assert len(asked) == 2


def test_another_question_version_scope_or_step_is_asked() -> None:
    store = QuickStore()
    lives(store, asks, "c_ask", "What is it?", id="one")
    lives(store, asks, "c_ask", "what is it", id="two")
    lives(store, asks, "c_words", "What is it?", id="three")
    lives(store, asks, "c_words", "what is it", id="four")
    assert len(asked) == 3
    assert answered(store, "four").m.cache == "words"


def test_only_runs_with_the_same_labels_share_and_a_run_without_is_not_cached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = QuickStore()
    for run, labels in (("a", "acme"), ("b", "acme"), ("c", "other")):
        lives(store, asks, "c_tenant", "What is it?", id=run, labels={"tenant": labels, "user": run})
    assert len(asked) == 2
    for run in ("d", "e"):
        lives(store, asks, "c_tenant", "What is it?", id=run, labels={"user": "x"})
    assert len(asked) == 4
    assert "calls of c_tenant in run 'd' are not cached: the run has no label tenant" in caplog.text
    assert {kept.answer.scope["tenant"] for kept in entries.answers(store) if kept.answer} == {
        "acme",
        "other",
    }


def test_an_expired_or_poisoned_answer_is_a_miss() -> None:
    store = QuickStore()
    lives(store, asks, "c_ask", "What is it?", id="one")
    (kept,) = entries.answers(store)
    assert kept.answer is not None
    wrong = msgspec.structs.replace(kept.answer, value=msgspec.Raw(b'{"text":7}'))
    bodies = [
        b"{}",
        msgspec.json.encode(cached_answer.sealed(wrong)),  # well made, and of another type
        msgspec.json.encode(cached_answer.sealed(msgspec.structs.replace(kept.answer, at_ms=1))),
    ]
    for number, body in enumerate(bodies):
        store.write_document(kept.name, body, version=store.read_documents(kept.name)[0].version)
        lives(store, asks, "c_ask", "What is it?", id=f"after {number}")
        assert len(asked) == number + 2
        lives(store, asks, "c_ask", "What is it?", id=f"then {number}")
        assert len(asked) == number + 2


def test_a_failure_is_not_kept() -> None:
    @nl.decision(name="c_fails", cache=nl.Cache(ttl=DAY))
    async def fails(question: str) -> str:
        asked.append(question)
        raise nl.Permanent("no")

    @nl.agent(name="c_failing")
    async def failing() -> str:
        try:
            return await fails("What is it?")
        except nl.Permanent:
            return "failed"

    store = QuickStore()
    assert [lives(store, failing, id=run) for run in ("one", "two")] == ["failed"] * 2
    assert len(asked) == 2
    assert list(entries.answers(store)) == []


def test_a_cache_that_cannot_be_read_or_written_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    store = QuickStore()
    lives(store, asks, "c_ask", "What is it?", id="one")
    with monkeypatch.context() as broken:
        broken.setattr(entries, "lookup", lambda *_: (_ for _ in ()).throw(nl.StoreError("gone")))
        lives(store, asks, "c_ask", "What is it?", id="two")
    assert len(asked) == 2
    assert lives(store, asks, "c_ask", "What is it?", id="three").startswith("1: ")


# A hit is the run's own --------------------------------------------------------------------------


def delivered_again_when_the_cache_is_gone(store: QuickStore, poison: bytes | None) -> list[str]:
    """Let a run use a cached answer and die; change the cache; return what its second life says and asks."""
    stage = Stage()

    @nl.agent(name="c_twice")
    async def agent() -> str:
        text: str = (await ask("What is it?")).text
        await stage.stop_here()
        return text

    async def main() -> str:
        await first_life(stage, store, agent)
        (kept,) = entries.answers(store)
        store.write_document(kept.name, poison, version=kept.version)
        return str(await second_life(store, agent))

    lives(store, asks, "c_ask", "What is it?", id="one")
    return [run_async(main), *asked]


@pytest.mark.parametrize("poison", [None, b"{}", b'{"value":"evil"}'])
def test_what_happens_to_the_cache_changes_no_run_that_has_used_it(poison: bytes | None) -> None:
    wanted = ["1: What is it?", "What is it?"]
    assert delivered_again_when_the_cache_is_gone(QuickStore(), poison) == wanted


def test_a_hit_that_is_not_copied_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Replay.take_same

    def planted(replay: Replay, step: str, fingerprint: str) -> Any:
        found = replay.peek(step)
        is_hit = found is not None and found.body.m is not None and found.body.m.cache
        if is_hit:
            replay.take(step)
            replay.ids.discard(step)
            return None
        return take(replay, step, fingerprint)

    monkeypatch.setattr(Replay, "take_same", planted)
    assert delivered_again_when_the_cache_is_gone(QuickStore(), None) != ["1: What is it?", "What is it?"]


def test_the_second_run_may_use_an_answer_while_it_is_written_by_two() -> None:
    async def main() -> set[str]:
        store = QuickStore()
        async with nl.Runtime(store) as one, nl.Runtime(store) as other:
            await asyncio.gather(
                *(
                    rt.run(asks, "c_ask", "What is it?", id=f"run {at}")
                    for at, rt in enumerate((one, other) * 4)
                )
            )
        assert len(list(entries.answers(store))) == 1
        async with nl.Runtime(store) as rt:
            return {await rt.run(asks, "c_ask", "What is it?", id=f"late {at}") for at in range(3)}

    assert len(run_async(main)) == 1


# What it costs and saves ---------------------------------------------------------------------------


def test_hits_are_counted_with_what_they_saved() -> None:
    store = QuickStore()
    for run, step, question in (
        ("one", "c_words", "What is it?"),
        ("two", "c_words", "What is it?"),
        ("three", "c_words", "what is it"),
        ("four", "c_ask", "what is it"),
    ):
        lives(store, asks, step, question, id=run)
    (of_agent,) = cache_report.report(store).agents
    assert (of_agent.agent, of_agent.exact, of_agent.words, of_agent.meaning) == ("c_asks", 1, 1, 0)
    assert of_agent.tokens == 84


@pytest.mark.parametrize("step", ["c_ask", "c_hedged"])
def test_a_hit_spends_nothing_of_a_budget(tmp_path: Path, step: str) -> None:
    scene = Scene(tmp_path, 'name="b"\nscope="store"\nper="day"\ntokens=1000\nestimate={ tokens = 50 }\n')
    for run, spent in (("one", 42), ("two", 42)):
        scene.perform(asks, step, "What is it?", id=run)
        assert scene.spent("tokens") == spent
    assert scene.store.read_run("two") is not None
    assert len(asked) == 1


def test_show_and_history_say_how_a_call_was_answered() -> None:
    store = QuickStore()
    lives(store, asks, "c_words", "What is it?", id="one")
    lives(store, asks, "c_words", "what is it", id="two")
    records = store.load_journal("two", since=0).records
    said = "from the cache (words): answer "
    (line,) = [one for one in records_text.lines(records) if one.answered]
    assert line.answered.startswith(said)
    assert "of c_words[0] in run 'one', " in line.answered
    assert records_text.with_verdict(line).endswith(f"({line.answered})")
    assert [one.answered for one in records_text.history(records) if one.answered] == [line.answered]


def test_observers_see_a_hit_and_a_replay_of_it_saves_no_tokens() -> None:
    ended: list[BodyEnded] = []
    replayed: list[int] = []
    stage = Stage()

    class Watcher(Observer):
        def body_ended(self, event: BodyEnded) -> None:
            ended.append(event)

        def replayed(self, event: StepReplayed) -> None:
            replayed.append(paid_tokens(event.record.body))

    @nl.agent(name="c_watched")
    async def agent(question: str) -> str:
        text: str = (await ask(question)).text
        await stage.stop_here()
        return text

    async def main() -> None:
        for question in ("What is it?", "What else?"):
            stage.is_second = False
            await first_life(stage, store, agent, question, id=question)
            await second_life(store, agent, question, id=question)

    store = QuickStore()
    lives(store, asks, "c_ask", "What is it?", id="one")
    stop = hooks.observe_process(Watcher())
    try:
        run_async(main)
    finally:
        stop()
    assert [one.answered.cache for one in ended if one.answered is not None] == ["exact", ""]
    assert replayed == [0, 42]


def test_the_taint_of_an_answer_comes_along() -> None:
    @nl.action(name="c_page", reads_only=True, taint="web")
    async def page() -> str:
        return "a page"

    @nl.decision(name="c_reads", cache=nl.Cache(ttl=DAY))
    async def reads(question: str) -> str:
        asked.append(question)
        return await page()

    @nl.agent(name="c_reading")
    async def reading() -> str:
        return await reads("What is it?")

    store = QuickStore()
    for run in ("one", "two"):
        lives(store, reading, id=run)
        assert answered(store, run).o == ("web",)
    assert len(asked) == 1


def test_a_call_with_a_default_that_cannot_be_kept_is_not_cached() -> None:
    @nl.decision(name="c_default", cache=nl.Cache(ttl=DAY))
    async def with_default(question: str, client: Any = object()) -> str:  # noqa: B008
        asked.append(question)
        return question

    @nl.agent(name="c_defaulting")
    async def agent() -> str:
        return await with_default("What is it?")

    store = QuickStore()
    assert [lives(store, agent, id=run) for run in ("one", "two")] == ["What is it?"] * 2
    assert len(asked) == 2


def test_a_secret_is_neither_asked_of_a_cache_nor_kept() -> None:
    @nl.decision(name="c_secret", cache=nl.Cache(ttl=DAY))
    async def with_key(question: str, key: nl.Secret[str]) -> str:
        asked.append(key.reveal())
        return question

    @nl.agent(name="c_keyed")
    async def agent(key: str) -> str:
        return await with_key("What is it?", nl.Secret(key, name="API"))

    store = QuickStore()
    lives(store, agent, "a", id="one")
    lives(store, agent, "b", id="two")
    assert asked == ["a", "b"]
    assert list(entries.answers(store)) == []


# Declarations --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ttl": 0}, "ttl=0"),
        ({"ttl": 5, "scope": "tenant"}, "scope='tenant'"),
        ({"ttl": 5, "scope": ("",)}, r"scope=\(''"),
        ({"ttl": 5, "near": "fuzzy"}, "near='fuzzy'"),
        ({"ttl": 5, "version": 2}, "version=2"),
        ({"ttl": 5, "near": "words"}, "must say whether its answers lead to effects"),
        ({"ttl": 5, "leads_to_effects": True}, "near is 'exact'"),
    ],
)
def test_a_cache_that_makes_no_sense_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        nl.Cache(**given)
    assert caught.value.remedy


def test_a_question_in_no_parameter_is_refused() -> None:
    meaning = nl.Meaning(lambda texts: [[1.0] for _ in texts], of="prompt")
    cache = nl.Cache(ttl=DAY, near=meaning, leads_to_effects=False)
    with pytest.raises(UsageError, match="of='prompt', and there is no such parameter") as caught:

        @nl.decision(cache=cache)
        async def ask_of(question: str) -> str:
            return question

    assert "question" in (caught.value.remedy or "")


def test_a_cache_is_refused_where_the_arguments_do_not_say_it_all() -> None:
    cache = nl.Cache(ttl=DAY)
    with pytest.raises(UsageError, match=r"cache= is for functions, and this is a method"):

        class Asker:
            @nl.decision(cache=cache)
            async def ask(self, question: str) -> str:
                return question

    with pytest.raises(UsageError, match="returns a secret"):

        @nl.decision(cache=cache)
        async def fetch_key(question: str) -> nl.Secret[str]:
            return nl.Secret(question)


def test_keeping_has_ended_when_the_runtime_has(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []
    close = AnswerCache.close

    def closed(cache: AnswerCache) -> None:
        close(cache)
        ended.append(True)

    monkeypatch.setattr(AnswerCache, "close", closed)
    store = QuickStore()
    lives(store, asks, "c_ask", "What is it?", id="one")
    assert ended == [True]
    assert len(list(entries.answers(store))) == 1


def test_answers_that_wait_for_a_slow_store_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    keeper, begun, go_on, done = Keeper(), threading.Event(), threading.Event(), list[int]()

    def first() -> None:
        begun.set()
        assert go_on.wait(10)
        done.append(0)

    keeper.do(first)
    assert begun.wait(10)
    for _ in range(MOST_WAITING + 5):
        keeper.do(lambda: done.append(1))
    go_on.set()
    keeper.close()
    assert len(done) == MOST_WAITING + 1
    assert len([one for one in caplog.records if "was not kept" in one.message]) == 5
