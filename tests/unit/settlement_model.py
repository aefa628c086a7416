"""A model of the world around one non-resumable action, small enough to be explored in every order.

Lives of the run come and go; each may be killed, stopped and woken, or cut off; its body sends a request,
which lands at once, late, or never; replies get lost; probes are asked early and late and their answers are
written later still; a person answers. What may be done in each situation is asked of the rules under test.
The checker knows what really happened; the rules see only what an engine would see.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ninelives.core.journal import settlement
from ninelives.core.journal.settlement import Happened, NotHappened, Ruling, Standing, StartBody, Unknown
from ninelives.core.model.run import Kind
from ninelives.core.model.session import Fate

LIMIT = 2  # of a body that ends with its time limit
LANDING = 2  # until when a request that was sent may still land: what `settle_after` is for
LIVES = 2
STARTS = 2
END = 4  # of time: enough for a first doubt to ripen


class Rules(NamedTuple):
    """What is under test."""

    advance: Callable[[Standing, Kind, StartBody], Standing] = settlement.advance
    ripe_ms: Callable[[StartBody, Fate, int, int], int | None] = settlement.ripe_ms
    rule: Callable[[object, int, int | None, int], Ruling] = settlement.rule
    may_start: Callable[[Standing], bool] = lambda standing: standing.may_start
    proves_not_done: Callable[[str], bool] = lambda error: error == "NotDone"
    is_over: Callable[[Fate], bool] = lambda fate: fate is Fate.GONE


class Life(NamedTuple):
    """A process that owned the run, and the body that it runs."""

    status: str = "runs"  # runs | stopped | cut off (runs, and nobody can see it) | dead
    start: int = -1
    began: int = 0
    phase: str = "idle"  # idle | ready | sent


class World(NamedTuple):
    """One situation."""

    now: int = 0
    lives: tuple[Life, ...] = (Life(),)
    journal: tuple[tuple[Kind, int, int, int, bool], ...] = ()  # kind, start, life, when, body is over
    flying: tuple[tuple[int, int], ...] = ()  # start, when it was sent
    landed: tuple[int, ...] = ()
    ruling: tuple[int, Ruling] | None = None  # given by the probe to a life, not written yet
    outcome: str = ""
    asked: bool = False


class Broken(Exception):
    """An invariant does not hold."""


def explore(rules: Rules, *, bounded: bool) -> int:
    """Visit every situation that can come about; returns how many. Raises Broken."""
    first = World()
    seen, queue = {first}, deque([first])
    while queue:
        world = queue.popleft()
        for one in {_plain(one) for one in _moves(world, rules, bounded)} - seen:
            _check(one)
            seen.add(one)
            queue.append(one)
    return len(seen)


def _plain(world: World) -> World:
    """Forget what can make no difference any more, so that equal situations are one."""
    lives = tuple(
        Life(life.status) if life.status == "dead" or life.phase == "idle" else life for life in world.lives
    )
    return world._replace(lives=lives)


def _check(world: World) -> None:
    voided = {start for kind, start, *_ in world.journal if kind is Kind.VOIDED}
    started = [start for kind, start, *_ in world.journal if kind is Kind.INTENT]
    if len(world.landed) > 1:
        raise Broken(f"I3: it took effect twice: {world}")
    if len(set(started) - voided) > 1 or len(set(started)) < len(started):
        raise Broken(f"I3: two starts that are not voided: {world}")
    if voided & set(world.landed):
        raise Broken(f"I3: what landed was declared not to have happened: {world}")
    if world.outcome == "result" and not world.landed:
        raise Broken(f"a result of what never happened: {world}")
    if world.outcome == "failure" and world.landed:
        raise Broken(f"declared not done, and it was: {world}")


def _standing(world: World, rules: Rules, bounded: bool) -> Standing:
    now = Standing()
    for kind, start, life, when, over in world.journal:
        now = rules.advance(now, kind, StartBody(n=start, w=str(life), l=LIMIT, b=bounded, t=when, over=over))
    return now


def _moves(world: World, rules: Rules, bounded: bool) -> Iterator[World]:
    yield from _time(world, bounded)
    yield from _bodies(world, rules, bounded)
    if not world.outcome:
        yield from _deaths(world)
        yield from _owner(world, rules, bounded)


def _with(world: World, number: int, life: Life) -> tuple[Life, ...]:
    return (*world.lives[:number], life, *world.lives[number + 1 :])


def _wrote(world: World, kind: Kind, start: int, *, over: bool = False) -> World:
    """Write a record; those of a doubt make way for what comes after it, as they do in the rules."""
    kept = world.journal
    while kept and kept[-1][0] is Kind.DOUBT:
        kept = kept[:-1]
    record = (kind, start, len(world.lives) - 1, world.now if kind is Kind.DOUBT else 0, over)
    return world._replace(journal=(*kept, record))


def _time(world: World, bounded: bool) -> Iterator[World]:
    """Let time pass: requests that are too old are lost, and bodies whose time is over end."""
    for start, _ in world.flying:
        left = tuple(one for one in world.flying if one[0] != start)
        yield world._replace(flying=left)
        yield world._replace(flying=left, landed=(*world.landed, start))
    if world.now < END and all(world.now + 1 < sent + LANDING for _, sent in world.flying):
        lives = tuple(_older(world, life) if bounded else life for life in world.lives)
        yield world._replace(now=world.now + 1, lives=lives)


def _older(world: World, life: Life) -> Life:
    """End a body whose time is over; one in a process that stands still does not notice."""
    is_late = life.status in ("runs", "cut off") and world.now + 1 >= life.began + LIMIT
    return life._replace(phase="idle") if is_late else life


def _bodies(world: World, rules: Rules, bounded: bool) -> Iterator[World]:
    """Let bodies send, hear of what landed, and fail, in whatever life they are."""
    for number, life in enumerate(world.lives):
        if life.status not in ("runs", "cut off"):
            continue
        owns = number == len(world.lives) - 1 and life.status == "runs" and not world.outcome
        if life.phase == "ready":
            sent = _with(world, number, life._replace(phase="sent"))
            yield world._replace(lives=sent, flying=(*world.flying, (life.start, world.now)))
        if life.phase == "sent" and life.start in world.landed:
            heard = world._replace(lives=_with(world, number, life._replace(phase="idle")))
            yield heard._replace(outcome="result") if owns and _is_open(world, life.start) else heard
        if life.phase in ("ready", "sent") and owns and _is_open(world, life.start):
            yield from _failures(world, number, life, rules, bounded)


def _is_open(world: World, start: int) -> bool:
    """Tell whether the owner's body is still waited for: nothing was written after its intent."""
    return bool(world.journal) and world.journal[-1][:2] == (Kind.INTENT, start)


def _failures(world: World, number: int, life: Life, rules: Rules, bounded: bool) -> Iterator[World]:
    ended = world._replace(lives=_with(world, number, life._replace(phase="idle")))
    if life.phase == "ready":
        yield _wrote(ended, Kind.VOIDED, life.start)  # the body raised NotDone, and that is true
        yield _wrote(ended, Kind.VOIDED, life.start)._replace(outcome="failure")
    if rules.proves_not_done("OSError"):
        yield _wrote(ended, Kind.VOIDED, life.start)
    else:
        yield _wrote(ended, Kind.DOUBT, life.start, over=True)
    if not bounded:  # its time is over, and the thread goes on
        yield _wrote(world, Kind.DOUBT, life.start)


def _deaths(world: World) -> Iterator[World]:
    """Kill, stop, wake and cut off whatever runs."""
    for number, life in enumerate(world.lives):
        if life.status != "dead":
            yield world._replace(lives=_with(world, number, life._replace(status="dead")))
        if life.status == "runs":
            yield world._replace(lives=_with(world, number, life._replace(status="stopped")))
            if number == len(world.lives) - 1:
                yield world._replace(lives=_with(world, number, life._replace(status="cut off")))
        if life.status == "stopped" and number < len(world.lives) - 1:
            yield world._replace(lives=_with(world, number, life._replace(status="runs")))


def _owner(world: World, rules: Rules, bounded: bool) -> Iterator[World]:
    """Let the life that owns the run act; a life that is gone, stopped or cut off has a successor."""
    life = world.lives[-1]
    if life.status != "runs":
        if len(world.lives) < LIVES:
            yield world._replace(lives=(*world.lives, Life()), ruling=None)
        else:
            yield world._replace(outcome="beyond the model")
        return
    now = _standing(world, rules, bounded)
    if rules.may_start(now) and life.phase == "idle":
        if now.next >= STARTS:
            yield world._replace(outcome="beyond the model")
            return
        begun = life._replace(start=now.next, began=world.now, phase="ready")
        lives = _with(world, len(world.lives) - 1, begun)
        yield _wrote(world._replace(lives=lives), Kind.INTENT, now.next)
    elif now.start is not None and not (life.start == now.start.n and _is_open(world, life.start)):
        yield from _settle(world, rules, now.start, now.doubt)


def _settle(world: World, rules: Rules, start: StartBody, doubt: StartBody | None) -> Iterator[World]:
    """Do as the engine does in doubt: note its fate, ask the probe, later write what it said."""
    if world.ruling is not None:
        yield from _ruled(world, start.n, world.ruling[1])
        return
    if world.asked:
        yield from _person(world, start.n)
        return
    fate = _fate(world, start) if doubt is None or not doubt.over else Fate.GONE
    if doubt is None or (rules.is_over(fate) and not doubt.over):
        yield _wrote(world, Kind.DOUBT, start.n, over=rules.is_over(fate))
        return
    ripe = rules.ripe_ms(start, fate, doubt.t, LANDING)
    said = Happened(None) if start.n in world.landed else NotHappened()
    for answer in (said, Unknown(), None):
        ruling = rules.rule(answer, world.now, ripe, doubt.t + LIMIT)
        if ruling is Ruling.WAIT and world.now >= doubt.t + LIMIT + LANDING:
            raise Broken(f"I4: neither settled nor before a person: {world}")
        if ruling is not Ruling.WAIT:
            yield world._replace(ruling=(len(world.lives) - 1, ruling))


def _fate(world: World, start: StartBody) -> Fate:
    status = world.lives[int(start.w)].status
    return {"dead": Fate.GONE, "cut off": Fate.UNKNOWN}.get(status, Fate.LIVES)


def _ruled(world: World, start: int, ruling: Ruling) -> Iterator[World]:
    written = world._replace(ruling=None)
    if ruling is Ruling.HAPPENED:
        yield written._replace(outcome="result")
    elif ruling is Ruling.VOID:
        yield _wrote(written, Kind.VOIDED, start)
    elif ruling is Ruling.PERSON:
        yield written._replace(asked=True)


def _person(world: World, start: int) -> Iterator[World]:
    """Answer as a person who looks closely: says "not happened" only of what no longer can."""
    can = start in {one for one, _ in world.flying} or any(
        life.start == start and life.phase == "ready" and life.status != "dead" for life in world.lives
    )
    if start in world.landed:
        yield world._replace(outcome="result")
    elif not can:
        yield _wrote(world._replace(asked=False), Kind.VOIDED, start)
    yield world._replace(outcome="given up, as unknown")
