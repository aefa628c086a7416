"""Escalations: a person is asked about what stops a run; the answer resumes or ends the run.

The commit that stops the run also opens the inbox item, and until the answer nothing is appended to the run.
So an item belongs to one length of the journal, which is part of its id. The next record takes the answer,
and from then on the item is spent. If we die between the answer and that record, the next worker finds the
answer again; if we die after it, the run continues, or has failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from ninelives.core.errors import (
    BudgetExceeded,
    Corrupt,
    Divergence,
    NineLivesError,
    PolicyFailed,
    RunEscalated,
)
from ninelives.core.journal.answers import (
    ItemBody,
    Says,
    read_answer,
    read_item_body,
    write_item_body,
    write_taken,
)
from ninelives.core.model.commit import Escalate, Outcome
from ninelives.core.model.inbox import Item, ItemKind, NewItem
from ninelives.core.model.run import Kind, RunRow
from ninelives.core.rules.inbox_rules import stop_answered, stop_id
from ninelives.core.secret import masked_text
from ninelives.core.step_ids import step_text
from ninelives.engine.commit.loop_commits import LoopCommits
from ninelives.engine.commit.ticket import Draft, Extras
from ninelives.engine.run.execution import Execution
from ninelives.engine.worker import ending
from ninelives.engine.worker.event_loop import StoreCaller
from ninelives.store import Store

_CAUSES: dict[ItemKind, type[NineLivesError]] = {
    ItemKind.DIVERGENCE: Divergence,
    ItemKind.DAMAGE: Corrupt,
    ItemKind.BUDGET: BudgetExceeded,
    ItemKind.QUARANTINE: RunEscalated,
    ItemKind.RESOURCE: RunEscalated,
    ItemKind.POLICY: PolicyFailed,
}
_WAITS_CHARACTERS = 500


def request_about(why: NineLivesError) -> ItemBody:
    """Return an error as the body of an inbox item: what happened, the remedy, the evidence."""
    named = {"error": type(why).__name__, "path": why.path}
    return ItemBody(
        what=masked_text(why.what if why.path is None else f"{why.what} (at {why.path})"),
        remedy=why.remedy or "",
        evidence={name: text for name, text in named.items() if text is not None},
    )


async def escalate(
    calls: StoreCaller,
    commits: LoopCommits,
    execution: Execution,
    kind: ItemKind,
    request: ItemBody,
    *,
    step: str | None = None,
) -> None:
    """Open an inbox item about what stopped the run, and escalate the run, in one commit."""
    # First: records that are under way still change the length, and with it the item's id.
    await execution.flushed()
    tail, body, deferred = execution.tail, write_item_body(request), execution.take_deferred()
    if deferred:  # commit them first: the item's id contains the length of the journal
        await commits.commit(tail, deferred)
    named = f"step {step_text(step)}: " if step else ""
    item = NewItem(
        id=stop_id(tail.run, tail.length, kind, body),
        kind=kind,
        step=step or "",
        digest=blake2b(body, digest_size=16).digest(),
        body=body,
    )
    while True:
        fresh, items = await calls.call(_row_and_items, tail.run)
        news = fresh.news if fresh is not None else execution.run.news
        # One open question about what stops a run: an older one no longer applies.
        older = [one.id for one in items if one.kind in _CAUSES and one.id != item.id]
        change = Escalate(waits=f"for a person: {named}{request.what}"[:_WAITS_CHARACTERS], news_seen=news)
        extras = Extras(opens=(item,), closes=tuple(older), change=change)
        # CRASH: not escalated: the next owner replays up to here, and opens the item.
        verdict = await commits.commit(tail, (), extras)
        if verdict.outcome is not Outcome.STALE:  # stale: an older item was answered just now; read again
            break
    if verdict.error is not None:
        raise verdict.error


def _row_and_items(store: Store, run: str) -> tuple[RunRow | None, list[Item]]:
    return store.read_run(run), store.list_inbox(run=run)


async def settle(execution: Execution, items: Iterable[Item]) -> bool:
    """Take the answer to the item that stopped the run, if there is one; False when it ended the run."""
    item = stop_answered(execution.run, items)
    if item is None:
        return True
    drafts: list[Draft] = [(Kind.ANSWER, item.step, write_taken(item))]
    if read_answer(item).says is not Says.FAIL:
        # CRASH: the stop is answered, and the answer not taken: the next worker takes it.
        await execution.write(drafts)
        return execution.sealed is None
    await ending.fail(execution, _given_up(item), after=drafts)
    return False


def _given_up(item: Item) -> NineLivesError:
    note = read_answer(item).note
    said = f"{item.by} gave the run up" + (f", saying: {note}" if note else "")
    return _CAUSES[item.kind](
        f"{read_item_body(item).what}; {said}",
        run=item.run,
        step=item.step or None,
        remedy="Fix the cause and retry the run",
    )
