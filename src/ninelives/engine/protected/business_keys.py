"""Business keys: one action per key, across all runs.

A key is reserved in the commit that records the intent, and settled in the commit that records the result,
so the dedup table and the journal never contradict each other. A call whose key another run holds waits
durably, and shows what it waits for; a call whose key is settled copies the result into its run's journal.
When the owner of a key in doubt has ended, the next call takes the key over and settles the doubt instead.
If we die here, the key is ours and the next worker continues with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from msgspec.structs import replace

from ninelives.core.clock import boot_reading
from ninelives.core.errors import InvariantViolation, KeyConflict, NotDone, UnknownRun
from ninelives.core.governance.accounts import AccountOp
from ninelives.core.journal.replay import write_body
from ninelives.core.journal.settlement import Standing, StartBody, read_start, standing
from ninelives.core.model.commit import Outcome, Verdict
from ninelives.core.model.key import AdoptKey, Key, KeyOp, KeyState, ReserveKey, WaitKey
from ninelives.core.model.run import Kind, News, Record
from ninelives.core.rules import dedup
from ninelives.engine.commit.ticket import Extras
from ninelives.engine.context import Frame
from ninelives.engine.governor import Permit
from ninelives.engine.protected import doubt as doubts
from ninelives.engine.protected import doubt_inbox
from ninelives.engine.protected.protected_call import Ended, KeyedPosition, ProtectedCall
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.lifecycle import OPEN
from ninelives.engine.run.waits import Check, turn_away, wait
from ninelives.engine.step import gate, holds, judging, resumable
from ninelives.engine.step.envelope import decoded, reader, withdrawn
from ninelives.store import Store

_CLOCKS_DIFFER_MS = 1_000
"""How much two clocks may differ without one of them having been set."""
_OF_STARTS = (Kind.INTENT, Kind.DOUBT, Kind.VOIDED)
_OURS = (KeyState.RESERVED, KeyState.IN_DOUBT)


class RunKeys:
    """The business keys of one execution: those in use by a branch, and starts without an outcome."""

    def __init__(self, execution: Execution) -> None:
        replay = execution.replay
        self.busy: set[str] = set()
        self.open: dict[str, Standing] = {}
        found: dict[str, list[Record]] = {}
        for step in {*replay.intents, *replay.doubts}:
            records = replay.starts(step)
            key = (
                standing(records).start or read_start(records[-1])
            ).k  # a voided start may have had another key
            found[key] = sorted([*found.get(key, ()), *records], key=lambda record: record.seq)
        self.open = {key: standing(records) for key, records in found.items() if key}


async def carry_out(
    action: ProtectedCall, start: Callable[[ProtectedCall], Awaitable[Ended | None]]
) -> object:
    """Return the outcome of a keyed action: a result shared under the key, or that of its own body."""
    key = _key(action)
    async with _holding_key(action) as keys:
        if not action.effect.resumable:
            # By key, not by position: another call of this run may have left a start under it.
            action.standing = keys.open.get(key, action.standing)
            if action.standing.start is not None:
                await _regain(action)
        ended: Ended | None = None
        while ended is None:
            if action.effect.resumable and action.standing.may_start:
                ended = await _attempt(action)
            else:
                ended = await (start(action) if action.standing.may_start else doubts.settle(action))
        # A failure may leave a doubt, which the next call with this key has to settle first.
        keys.open[key] = action.standing if ended.error is not None else Standing()
        return await action.conclude(ended)


async def settle_start(action: ProtectedCall) -> Ended | None:
    """Settle an open start under the key it was made with, if any; None if it did not happen."""
    if action.key is None:
        return await _settled(action)
    async with _holding_key(action) as keys:
        await _regain(action)
        ended = await _settled(action)
        keys.open[action.key] = action.standing if ended is None or ended.error is not None else Standing()
        return ended


async def _settled(action: ProtectedCall) -> Ended | None:
    ended: Ended | None = None
    while ended is None and not action.standing.may_start:
        ended = await doubts.settle(action)
    return ended


@asynccontextmanager
async def _holding_key(action: ProtectedCall) -> AsyncIterator[RunKeys]:
    """Hold the action's key exclusively among the branches of the run; wait until it is free."""
    execution, key = action.execution, _key(action)
    keys = execution.component(RunKeys)
    what = f"for the key {key!r}, which another branch of this run holds"

    def free() -> Awaitable[bool]:
        # for_person: if the holder waits for a person, this wait must not keep the run from being escalated.
        return wait(execution, what, lambda _: True if key not in keys.busy else None, for_person=True)

    # A start of its own is under way: a withdrawal on record would hide it.
    action.is_waiting = not action.is_under_way
    while key in keys.busy:
        await (free() if action.is_waiting else action.despite_cancellation(free, waits=True))
    action.is_waiting = False
    keys.busy.add(key)
    try:
        yield keys
    finally:
        keys.busy.discard(key)
        # The holder is a branch of this process: no news from the store wakes those that wait for it.
        execution.wake_waits()


async def reserves(action: ProtectedCall) -> tuple[KeyOp, ...]:
    """Return the key operation that reserves the action's key, if it has one."""
    if action.key is None:
        return ()
    effect = action.effect
    fingerprint = (
        action.key_fingerprint if effect.identity is None else effect.identity(action.args, action.kwargs)
    )
    window_ms = None if effect.window_ms is None else effect.window_ms + await _set_forward_ms(action)
    name, aliases = action.step.name, action.step.aliases
    return (ReserveKey(action.key, name, fingerprint.digest, effect.resumable, window_ms, aliases),)


async def _set_forward_ms(action: ProtectedCall) -> int:
    """Return how far the store's clock was set forward since our lease began; keys do not age by that.

    The store is asked: a clock that was set a moment ago must not end a key's window.
    """
    execution = action.execution
    if execution.lease.since is None:
        return 0
    now_ms, steady_ms = execution.lease.since
    store_ms = await action.despite_cancellation(
        lambda: execution.call_store(lambda store: store.read_clock())
    )
    passed_ms = boot_reading(execution.clock)[1] - steady_ms
    set_ms = store_ms - now_ms - passed_ms
    return set_ms if set_ms > _CLOCKS_DIFFER_MS else 0


async def may_begin(action: ProtectedCall) -> tuple[KeyOp, ...]:
    """Return what reserves the action's key, once it may begin. The caller writes the intent at once.

    Nothing is awaited between the last question to what governs the run and the return.
    """
    execution = action.execution
    if execution.governing.governor is None:
        action.requires = holds.requirements(execution, action.step)
        return await reserves(action)
    if action.permit is None:  # a further start, or its key was waited for
        await _permitted(action, await gate.admit(action.gated()))
    keys = await reserves(action)
    if action.permit is not None:
        action.requires = await gate.wait_permitted(action.gated(), action.permit)
    return keys


async def _permitted(action: ProtectedCall, permit: Permit | None) -> None:
    """Note that the action may begin; stop the run if it would be under another key than the one in use."""
    key = action.key
    action.permitted(permit)
    if action.key != key:
        call = gate.call_of(action.gated())
        await gate.stop(
            action.execution, judging.failed(call, f"it changes the key {key!r}, which is in use")
        )


def extras(keys: tuple[KeyOp, ...], accounts: tuple[AccountOp, ...] = ()) -> Extras:
    """Return a commit's extras with these operations, marked as an effect: it must not be lost."""
    return Extras(keys=keys, is_effect=True, accounts=accounts)


async def learn_generation(action: ProtectedCall, verdict: Verdict) -> None:
    """Read how often the key was released before: each generation gives the body another key.

    The verdict carries the key's row, unless the reply to a first try was lost and the retry found the
    commit applied; then the row is read.
    """
    if isinstance(action.position, KeyedPosition):
        known = verdict.key if verdict.key is not None else await _read(action)
        action.position.generation = known.generation


async def refused(action: ProtectedCall, verdict: Verdict) -> Ended | None:
    """Handle a refused intent: copy, take over or wait; return None when the caller may try again.

    Raises Denied, recorded, if what governs the run denies the call now.
    """
    if verdict.outcome in (Outcome.CHANGED, Outcome.OVER):
        if action.is_cancelled:
            raise asyncio.CancelledError  # nothing has started
        permit = await gate.refused(action.gated(), action.permit, verdict, action.refusals)
        await _permitted(action, permit)
        action.refusals += 1
        return None
    if isinstance(verdict.error, KeyConflict):
        verdict.error.step = action.position.id
        return Ended(error=verdict.error)
    known = verdict.key
    if known is None:
        raise InvariantViolation(f"a key was refused without its row: {verdict}")
    if action.is_cancelled:
        raise asyncio.CancelledError  # nothing has started
    if known.state is KeyState.SETTLED:
        return await _copied(action, known)
    action.permit = None  # judged again: a key may be held for days
    if known.state is KeyState.ORPHANED or known.run == action.execution.run.id:
        await _take_over(action, known)
        return None
    action.is_waiting = True
    await _wait(action, known)
    action.is_waiting = False
    return None


# Internals ----------------------------------------------------------------------------------------


def _key(action: ProtectedCall) -> str:
    if action.key is None:
        raise InvariantViolation("the action has no key")
    return action.key


async def _read(action: ProtectedCall) -> Key:
    key = _key(action)
    rows: dict[str, Key] = await action.despite_cancellation(
        lambda: action.execution.call_store(lambda store: store.read_keys([key]))
    )
    return rows[key]


async def _copied(action: ProtectedCall, known: Key) -> Ended:
    """Return the result that is stored under the settled key."""
    data = known.body
    if not data:
        name = known.blobs[0]
        found = await action.despite_cancellation(
            lambda: action.execution.call_store(lambda store: store.get_blobs([name]))
        )
        data = found[name]
    # Before it is recorded: a value that this code cannot read must not enter its journal.
    await decoded(action.execution, action.position.id, reader(action.step), data)
    return Ended(data)


async def _regain(action: ProtectedCall) -> None:
    """Check that the key of a start without an outcome is still ours: the run may have ended meanwhile.

    An orphaned key is taken over. If another run has it, or it is neither reserved nor in doubt, our start is
    voided.
    """
    if action.standing.start is None:
        return
    known = await _read(action)
    if isinstance(action.position, KeyedPosition):
        action.position.generation = known.generation
    if known.state is KeyState.ORPHANED:
        await _take_over(action, known)
    elif known.run != action.execution.run.id or known.state not in _OURS:
        why = f"run {known.run!r} has settled its key since"
        await action.record(Kind.VOIDED, n=action.standing.start.n, why=why)


async def _take_over(action: ProtectedCall, known: Key) -> None:
    """Take over a start that no run owns any more, together with its key."""
    start, doubt = action.standing.start, action.standing.doubt
    ended = known.state is KeyState.ORPHANED
    if start is None or doubt is None or known.run != action.execution.run.id:
        boot, boot_ms = boot_reading(action.execution.clock)
        found = await _standing_of(action, known)
        # Numbered as our own next start: each run counts its starts separately.
        start = start or replace(
            found.start or StartBody(l=action.effect.limit_ms, b=action.step.is_async), n=action.standing.next
        )
        doubt = StartBody(
            t=action.execution.store.now_ms(),
            boot=boot,
            boot_ms=boot_ms,
            why=f"run {known.run!r} {'ended' if ended else 'went on'} without knowing whether it happened",
            over=found.doubt is not None and found.doubt.over,
            lost=found.doubt is not None and found.doubt.lost,
        )
    # Only an orphaned key changes its owner; any other of ours is ours already.
    adopts = (AdoptKey(known.key),) if ended else ()
    verdict = await action.record(Kind.DOUBT, adopts, **doubt_inbox.known(start, doubt))
    if verdict.outcome is Outcome.COMMITTED and isinstance(action.position, KeyedPosition):
        action.position.generation = known.generation


async def _standing_of(action: ProtectedCall, known: Key) -> Standing:
    """Return the standing in which another run left the action under the key: its start and doubt."""

    def read(store: Store) -> list[Record]:
        try:
            found = store.load_journal(known.run, since=0).records
        except UnknownRun:
            return []  # the run was pruned
        return [one for one in found if one.kind in _OF_STARTS and read_start(one).k == known.key]

    return standing(await action.despite_cancellation(lambda: action.execution.call_store(read)))


async def _wait(action: ProtectedCall, known: Key) -> None:
    """Wait until the key is settled or free."""
    execution, key = action.execution, known.key
    waiting = (Kind.WAITING, action.position.id, write_body(action.fingerprint))
    asks = Extras(keys=(WaitKey(key),))
    # Read before the commit: news that comes with it must count as new.
    known_news = execution.latest.news
    await action.write([waiting], asks)
    # CRASH: the wait is recorded and its waiter in memory is gone: the next worker requests the key again.
    if action.is_cancelled:
        raise asyncio.CancelledError

    async def check(news: News) -> bool | None:
        nonlocal known_news
        rows = await execution.call_store(lambda store: store.read_keys([key]))
        if not dedup.is_held(rows.get(key), execution.run.id):
            return True
        if news.run.news != known_news:
            # The news may have been about this key, and another run holds it again. The store notifies a
            # waiter once, so we register again. If the key is free by now, the store reports that at once.
            known_news = news.run.news
            await execution.durable(execution.write([waiting], asks))
        return None

    probe: Check[bool] = check
    await wait(execution, f"for the key {key!r}, held by run {known.run!r}", probe)


async def _attempt(action: ProtectedCall) -> Ended | None:
    """Run the body of a resumable action under its key."""
    execution, position = action.execution, action.position
    if execution.phase is not OPEN:
        await turn_away(execution)
    # The reservation and the intent are one commit: neither exists without the other.
    keys = await may_begin(action)
    asks = Extras(
        keys=keys,
        is_effect=True,
        requires=action.requires,
        accounts=action.permit.accounts if action.permit is not None else (),
    )
    intent = action.draft(Kind.INTENT, w=execution.run.session or "", j=action.judged())
    verdict = await action.write([intent], asks)
    if verdict.outcome is not Outcome.COMMITTED:
        return await refused(action, verdict)
    action.began()
    await learn_generation(action, verdict)
    frame, branch = action.begin(), action.branch
    frame.cancels = cancels = branch.cancelling() if branch is not None else 0
    try:
        if action.is_cancelled:
            raise asyncio.CancelledError  # noqa: TRY301 (before it began)
        ended = await _ended(action, frame)
        if branch is not None and branch.cancelling() > cancels:
            raise asyncio.CancelledError  # noqa: TRY301 (the body swallowed it)
    except asyncio.CancelledError:
        if execution.sealed is None:
            # Not awaited: the code is being cancelled. Later records do not become durable before this one.
            execution.write(
                [withdrawn(position, action.fingerprint, action.step.kind)],
                extras(action.passes(), action.settled(None)),
            )
        raise
    return ended


async def _ended(action: ProtectedCall, frame: Frame) -> Ended:
    output = action.execution.output
    try:
        data = action.step.codec.round(
            await resumable.attempt(
                action.execution, action.step, frame, action.attempted, permit=action.begun
            )
        )[0]
        ended = Ended(data, keys=action.settles(data))
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 (a failure is an outcome)
        failed = resumable.named(error, action.execution, action.position)
        ended = Ended(error=failed, keys=action.releases() if isinstance(error, NotDone) else action.passes())
    if output is not None:
        output.settle(action.position.id, stands=ended.error is None)
    return ended
