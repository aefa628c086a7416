"""What the engine says of its steps in records and rows: kinds, durations, attempts, tokens, errors."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.journal.replay import read_body
from ninelives.core.model.run import Kind, Record, RunRow, StepKind
from ninelives.core.model.totals import NO_FACTS, Facts, Tally, added, error_text, read_retrying
from ninelives.core.values.token_usage import Usage, usage_in
from ninelives.stores.sqlite import SqliteStore

failures: list[str] = []
ANSWER = {"model": "m-1", "usage": {"input_tokens": 7, "output_tokens": 3}, "text": "hi"}


@nl.decision(name="tally-think")
async def think() -> dict[str, Any]:
    return ANSWER


@nl.action(name="tally-look", reads_only=True)
async def look() -> int:
    return 1


@nl.action(name="tally-try", retry=nl.Retry(attempts=3, base_seconds=0.001))
async def try_() -> str:
    if failures:
        raise nl.Transient(failures.pop())
    return "done"


@nl.action(name="tally-wait", retry=nl.Retry(attempts=4, base_seconds=3000.0, max_seconds=3000.0))
async def wait_long() -> str:
    raise nl.Transient("not\0now")


@nl.action(name="tally-once", resumable=False)
async def once() -> str:
    return "sent"


@nl.action(name="tally-keyed", key="tally:{order}")
async def keyed(order: int) -> str:
    return f"booked {order}"


@nl.action(name="tally-break")
async def break_() -> None:
    raise nl.Permanent("broken")


@nl.agent(name="tally-all")
async def everything() -> str:
    nl.progress(1, of=2, note="begun")
    await think()
    await look()
    await try_()
    await once()
    await keyed(1)
    await nl.sleep(0.001)
    nl.now()
    try:
        await break_()
    except nl.Permanent:
        nl.progress(2, of=2, note="over")
    return "all"


@nl.agent(name="tally-parks")
async def parks() -> str:
    await look()
    return await wait_long()


@nl.agent(name="tally-fails")
async def fails() -> None:
    raise ValueError("of the agent")


def played(path: Path, agent: Any) -> tuple[RunRow, dict[str, Record]]:
    """Work on a run until nothing can be done; returns its row, and its last record of each step."""

    async def main() -> None:
        async with nl.Runtime(f"sqlite:///{path}") as rt:
            await rt.start(agent, id="r")
            await rt.work(until_idle=True)

    asyncio.run(main())
    store = SqliteStore(path)
    journal = store.load_journal("r")
    store.close()
    return journal.run, {record.step.split("#")[1]: record for record in journal.records if record.step}


def test_each_record_says_the_kind_of_its_step_its_life_and_how_long_it_took(tmp_path: Path) -> None:
    failures[:] = ["second", "first"]
    run, found = played(tmp_path / "runs.db", everything)
    kinds = {
        "tally-think": StepKind.DECISION, "tally-look": StepKind.READ, "tally-try": StepKind.ACTION,
        "tally-once": StepKind.ACTION, "tally-keyed": StepKind.ACTION, "tally-break": StepKind.ACTION,
        "sleep": StepKind.BUILTIN, "now": StepKind.BUILTIN, "progress": None,
    }  # fmt: skip
    assert {name: found[name].step_kind for name in kinds} == kinds
    assert {record.epoch for record in found.values()} == {1}
    bodied = [name for name in kinds if name.startswith("tally-")]
    assert all(found[name].took_ms is not None for name in (*bodied, "sleep"))
    assert run.steps == 8


def test_failed_attempts_and_what_a_model_said_of_its_cost_are_in_the_outcome(tmp_path: Path) -> None:
    failures[:] = ["second", "first"]
    run, found = played(tmp_path / "runs.db", everything)
    tried = read_body(found["tally-try"]).attempts
    assert [one.error for one in tried] == ["Transient: first", "Transient: second"]
    assert all(one.at_ms <= found["tally-try"].at_ms and one.took_ms >= 0 for one in tried)
    assert read_body(found["tally-think"]).usage == Usage(7, 3, "m-1")
    assert read_body(found["tally-look"]).usage is None
    assert (run.tokens_in, run.tokens_out) == (7, 3)
    assert run.progress == '{"step":2,"of":2,"note":"over"}'
    assert run.last_error == "Permanent: broken"
    assert run.retrying == ""


def test_the_row_says_what_is_tried_again_and_why(tmp_path: Path) -> None:
    run, found = played(tmp_path / "runs.db", parks)
    known = read_retrying(run.retrying)
    assert known is not None
    assert (known.step, known.attempt, known.of) == (found["tally-wait"].step, 1, 4)
    assert known.due_ms == run.due_ms
    assert known.error == run.last_error == "Transient: not?now"
    assert (found["tally-wait"].kind, found["tally-wait"].step_kind) == (Kind.INTENT, StepKind.ACTION)


def test_the_row_of_a_failed_run_says_its_error(tmp_path: Path) -> None:
    run, _ = played(tmp_path / "runs.db", fails)
    assert (run.state, run.last_error) == ("failed", "ValueError: of the agent")


def test_an_outcome_ends_only_the_retry_of_its_own_step() -> None:
    tally = Tally(retrying='{"step":"a#0","attempt":1,"of":3,"due_ms":5,"error":"x"}')
    assert added(tally, Kind.RESULT, "b#0", b"", NO_FACTS).retrying == tally.retrying
    assert added(tally, Kind.RESULT, "a#0", b"", NO_FACTS) == Tally(1)
    assert added(tally, Kind.END, "", b"", Facts(error="E: gone")) == Tally(last_error="E: gone")


@pytest.mark.parametrize(
    ("value", "usage"),
    [
        (b'{"usage":{"prompt_tokens":1,"completion_tokens":2},"model":"m"}', Usage(1, 2, "m")),
        (
            b'[{"usage":{"input_tokens":1,"output_tokens":2}},{"input_tokens":3,"output_tokens":4}]',
            Usage(4, 6),
        ),
        (b'{"usage":{"prompt_tokens":"1","completion_tokens":2}}', None),
        (b'{"usage":{"prompt_tokens":true,"completion_tokens":-2}}', None),
        (b'{"text":"no _tokens here"}', None),
        (b'{"prompt_tokens":1', None),
        (b'"plain"', None),
    ],
)
def test_usage_is_found_where_it_is_said(value: bytes, usage: Usage | None) -> None:
    assert usage_in(value) == usage


def test_the_text_of_an_error_can_be_kept_by_every_store() -> None:
    assert error_text(ValueError("a\0b\ud800" + "x" * 500)) == "ValueError: a?b?" + "x" * 184
    assert error_text(KeyboardInterrupt()) == "KeyboardInterrupt"
