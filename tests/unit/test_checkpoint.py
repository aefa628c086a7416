"""The checkpoint: what a person needs to know of a run, from its records."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

import ninelives as nl
from ninelives.cli.app import app
from ninelives.core.model.commit import Outcome
from ninelives.core.model.run import Kind
from ninelives.stores.sqlite import SqliteStore
from ninelives.views.checkpoint import EffectState, effects_in, operations_in
from tests.contract.makers import append, new_run, new_session
from tests.replay.lifetimes import QuickStore, once, run_async

START = {"f": "", "a": {"order": '"17"'}, "n": 0, "w": "s1", "l": 60000, "k": "refund:17"}


def journal(*drafts: tuple[Kind, str, dict[str, Any]]) -> Any:
    """Return a journal with these records behind record 0."""
    store = QuickStore()
    store.create_runs([new_run("r1")])
    store.register_session(new_session("s1", lease_ms=100_000))
    (run,) = store.claim_runs("s1", 1, {"helper": 1}).runs
    for kind, step, body in drafts:
        made = append(run, msgspec.json.encode(body), kind=kind)
        named = replace(made.records[0], step=step, check=b"")
        draft = (named.kind, named.step, named.at_ms, named.body, named.blobs)
        from ninelives.core.journal import chain

        commit = replace(made, records=chain.seal(run.length, run.head, [draft], run.epoch))
        assert store.commit([commit])[0].outcome is Outcome.COMMITTED
        run = store.read_run("r1") or run
    return store.load_journal("r1")


@pytest.mark.parametrize(
    ("then", "state", "in_doubt"),
    [
        ((), EffectState.STARTED, 0),
        ((Kind.DOUBT,), EffectState.IN_DOUBT, 1),
        ((Kind.DOUBT, Kind.VOIDED), EffectState.NOT_DONE, 0),
        ((Kind.RESULT,), EffectState.DONE, 0),
        ((Kind.DOUBT, Kind.FAILURE), EffectState.FAILED, 0),
    ],
)
def test_a_non_resumable_action_is_shown_with_what_is_known(
    then: tuple[Kind, ...], state: EffectState, in_doubt: int
) -> None:
    records = journal(
        (Kind.INTENT, "#refund#0", START), *((kind, "#refund#0", START) for kind in then)
    ).records
    (effect,) = effects_in(records)
    assert (effect.step, effect.state, effect.key, effect.starts) == ("refund[0]", state, "refund:17", 1)
    assert len(operations_in(records, Kind.DOUBT)) == in_doubt
    assert [one.arguments for one in operations_in(records, Kind.DOUBT)] == [{"order": '"17"'}] * in_doubt


def test_a_resumable_step_is_pending_and_no_effect() -> None:
    records = journal((Kind.INTENT, "#ask#0", {"a": {"q": '"?"'}})).records
    assert effects_in(records) == []
    assert [one.step for one in operations_in(records, Kind.INTENT)] == ["ask[0]"]


def test_a_checkpoint_tells_what_is_held_said_and_failed(tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    file.write_text("draft", encoding="utf-8")
    store = QuickStore()

    @nl.action(name="fails", retry=nl.Retry(attempts=1))
    async def fails() -> None:
        raise ValueError("no such order")

    @nl.agent(name="holding")
    async def agent() -> str:
        nl.hold(nl.File(file))
        nl.progress(2, of=3, note="nearly")
        try:
            await fails()
        except Exception:
            return "went on"
        return "never"

    once(agent, store=store, id="run")

    async def main() -> Any:
        async with nl.Runtime(store) as rt:
            return await (await rt.get("run")).checkpoint()

    point = run_async(main)
    assert point.progress == "step 2 of 3: nearly"
    assert [str(file) in one.what for one in point.resources] == [True]
    assert "no such order" in point.last_error
    assert "fails[0]" in point.last_error
    assert (point.next_wake_up, point.salvaged, point.session) == (None, "", None)


def test_a_parked_run_s_checkpoint_tells_its_wake_up() -> None:
    store = QuickStore()

    @nl.agent(name="sleeping")
    async def agent() -> None:
        await nl.sleep(3600)

    async def main() -> Any:
        async with nl.Runtime(store) as rt:
            run = await rt.start(agent)
            await rt.work(until_idle=True)
            return await run.checkpoint()

    point = run_async(main)
    assert point.status == "checkpointed"
    assert point.next_wake_up is not None
    assert point.waits


def test_show_says_what_is_held_and_what_was_given_up(tmp_path: Path) -> None:
    file, path = tmp_path / "report.txt", tmp_path / "runs.db"
    file.write_text("draft", encoding="utf-8")
    stopped = asyncio.Event()

    @nl.decision(name="choose")
    async def choose() -> str:
        return "left"

    @nl.decision(name="stop")
    async def stop() -> None:
        if not stopped.is_set():
            stopped.set()
            await asyncio.Event().wait()

    @nl.agent(name="shown")
    async def agent() -> str:
        nl.hold(nl.File(file))
        chosen = await choose()
        await stop()
        return chosen

    async def main() -> None:
        async with nl.Runtime(f"sqlite:///{path}") as rt:
            run = await rt.start(agent, id="r")
            working = asyncio.create_task(rt.work())
            await stopped.wait()
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
            assert await run.status() == "checkpointed"

    run_async(main)
    store = SqliteStore(path)
    last = store.load_journal("r").records[-1]
    store.close()
    assert last.kind in (Kind.RESULT, Kind.INTENT)
    import apsw

    connection = apsw.Connection(str(path))
    connection.execute("UPDATE records SET body = x'00' WHERE seq = ?", (last.seq,))
    connection.close()

    async def again() -> None:
        async with nl.Runtime(f"sqlite:///{path}") as rt:
            await rt.run(agent, id="r")

    run_async(again)
    said = CliRunner().invoke(app, ["show", "r", "--store", f"sqlite:///{path}"]).output
    assert "holds        file" in said
    assert str(file) in said
    assert f"salvaged     record {last.seq} could not be read" in said
