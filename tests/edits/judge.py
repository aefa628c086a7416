"""What must hold of a pair, by the ledger outside: no effect twice, no start forgotten, `check` right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ninelives.core.model.run import State
from ninelives.ops.check import Fit
from tests.edits.editor import HARMLESS, NEED_KINDS
from tests.edits.journal import Past, counted
from tests.edits.lives import RUN
from tests.edits.meaning import Logical, Meaning, Stand, TurnMeaning, meaning_of
from tests.edits.model import Fate, predict
from tests.edits.pairs import History, Taken, effects_of
from tests.edits.programs import Patched, nodes


def judge(history: History) -> list[str]:
    """Return what was wrong."""
    return [
        *_repeats(history),
        *_shared(history),
        *_forgotten(history),
        *_ends(history),
        *_given(history),
        *_divergences(history),
        *_checks(history),
        *_unexpected(history),
        *_false_alarms(history),
    ]


def asked_for(history: History) -> Counter[Logical]:
    """Return how often each effect was asked for: of each turn, by the version that asks for it most.

    A turn that is over was ended by code that had asked for all that is on record, or gives it up. An effect
    that moved from a turn that was over by then into a later one is done again there, unless it has a key.
    """
    last = history.lives[-1].end.turn
    most, calls = Counter[Logical](), Counter[Logical]()
    for number in range(last + 1):
        lives = [life for life in history.lives if life.stand.turn <= number <= life.end.turn]
        turns = [life.meaning.turn(number) or TurnMeaning(life.end) for life in lives]
        asks, called = Counter[Logical](), Counter[Logical]()
        for turn in turns:
            asks |= turn.asks
            called |= turn.calls
        if number < last:
            for logical in asks:
                if not _is_forgotten(lives[-1], logical[0]):
                    asks[logical], called[logical] = turns[-1].asks[logical], turns[-1].calls[logical]
        most += asks
        calls += called
    for logical in most:
        keys = {_key(life, logical[0]) for life in history.lives}
        if len(keys) > 1:  # another key is another effect
            most[logical] = calls[logical]
        elif keys != {""}:
            most[logical] = 1
        if any(_gives_up(life, logical[0]) for life in history.lives):
            most[logical] = sum(life.meaning.calls[logical] for life in history.lives)
    return most


def _repeats(history: History) -> Iterator[str]:
    """No effect more often than asked for; one that may be repeated, only where a kill has cut it off."""
    asked, done = asked_for(history), effects_of(history)
    cut, unseen = _cut(history)
    events = [event for event in history.events if event.fact == "effect"]
    for logical, times in done.items():
        may_repeat = any(_kind(life, logical[0]) == "action" for life in history.lives)
        if times > asked[logical] + (cut[logical] if may_repeat else 0):
            yield f"{_shown(logical)} took effect {times} times; it is asked for {asked[logical]} times"
        keys = {event.key for event in events if (event.lineage, event.to, event.n) == logical}
        if len(keys) > asked[logical] + unseen[logical]:
            yield f"{_shown(logical)} had {len(keys)} keys; it is asked for {asked[logical]} times"


def _shared(history: History) -> Iterator[str]:
    """No two calls share a key: their provider would take the second for the first.

    Of one that was cut off before its start was on record nothing is known: the place has its key again.
    """
    cut, unseen = _cut(history)
    calls: dict[str, Counter[Logical]] = {}
    for event in history.events:
        if event.fact == "effect":
            calls.setdefault(event.key, Counter())[event.lineage, event.to, event.n] += 1
    for key, done in calls.items():
        known = [logical for logical in done if not unseen[logical]]
        if len(known) > 1:
            yield f"{' and '.join(map(_shown, known))} had one key: {key}"
        for logical, times in done.items():
            if times > 1 + cut[logical]:
                yield f"{_shown(logical)} took effect {times} times under one key: {key}"


def _cut(history: History) -> tuple[Counter[Logical], Counter[Logical]]:
    """Count effects that a kill kept from being recorded; and those of them without a recorded start."""
    cut: Counter[Logical] = Counter()
    unseen: Counter[Logical] = Counter()
    for number, life in enumerate(history.lives, 1):
        if life.died:
            here = effects_of(history, number)
            lost = here - (counted(life.after) - counted(life.before))
            cut += lost
            started = Counter(past.logical for past in life.after if past.is_open)
            unseen += lost - started
    return cut, unseen


def _forgotten(history: History) -> Iterator[str]:
    """A start that must not be repeated, without an outcome, is settled before the run ends, or seen."""
    last = history.lives[-1]
    if last.state is not State.COMPLETED:
        return
    for number, life in enumerate(history.lives[:-1], 1):
        for past in life.after:
            if past.is_open and past.is_protected and not _is_answered(history, past, number):
                yield f"the start of {past} in life {number} was forgotten"


def _is_answered(history: History, past: Past, number: int) -> bool:
    """Return whether a start of a life was looked into: by its probe later, or by a person."""
    return any(
        (event.to, event.n) == (past.to, past.n)
        and event.life >= number + (event.fact == "verified")  # a person's answer is kept, a probe's is not
        and event.fact in ("verified", "settled")
        for event in history.events
    )


def _ends(history: History) -> Iterator[str]:
    """The run ends; or stops before anything fresh."""
    for number, life in enumerate(history.lives, 1):
        if life.died or (life.version.kill.at == "rest" and not life.state.is_final):
            continue
        if life.why and not _is_key_taken(life):
            yield f"life {number}: {life.why}"
        elif life.state not in (State.COMPLETED, State.ESCALATED) and not life.why:
            yield f"life {number} ended {life.state}"


def _given(history: History) -> Iterator[str]:
    """Each turn hands on what its code gives, and the last returns it; what they ask for was done in them."""
    for number, life in enumerate(history.lives, 1):
        is_over = life.state is State.COMPLETED
        if (number > 1 and life.check is None) or not (is_over or life.end.turn > life.stand.turn):
            continue
        gave = life.result if is_over else life.end
        meant = [one for one in _meanings(life) if gave == (one.result if is_over else _stand(one, life.end))]
        if not meant:
            should = life.meaning.result if is_over else _stand(life.meaning, life.end)
            yield f"life {number} gave {gave}, not {should}"
            continue
        yield from _undone(history, number, meant[0].turns[: life.end.turn - life.stand.turn + is_over])


def _stand(meaning: Meaning, end: Stand) -> Stand | None:
    turn = meaning.turn(end.turn)
    return turn.stand if turn is not None else None


def _undone(history: History, number: int, turns: list[TurnMeaning]) -> Iterator[str]:
    """What a turn asks for was done in this turn; with a key, or by a child, at any time."""
    decls = history.lives[number - 1].version.program.decls
    events = [one for one in history.events if one.fact == "effect" and one.life <= number]
    for turn in turns:
        for logical, times in turn.asks.items():
            decl = decls.get(logical[0])
            if decl is not None and decl.fails:
                continue
            done = sum(
                (event.lineage, event.to, event.n) == logical
                and (decl is None or bool(decl.key) or event.turn == turn.stand.turn)
                for event in events
            )
            if done < times:
                where = f"turn {turn.stand.turn} ended"
                yield f"life {number}: {where}, and {_shown(logical)} was done {done} of {times} times"


def _is_key_taken(life: Taken) -> bool:
    """Return whether a key refuses a step that the code calls a new one, for the old one has used it.

    Records of a turn that is over are not looked for, so there a step without its alias is a new one.
    """
    decls = life.version.program.decls
    over = {(past.lineage, past.name) for past in life.after if past.turn < life.end.turn}
    is_new = any(
        decl.key and name not in (decl.name, *decl.aliases)
        for lineage, name in over
        if (decl := decls.get(lineage)) is not None
    )
    return "KeyConflict" in life.why and (is_new or any(_gives_up(life, name) for name in decls))


def _meanings(life: Taken) -> Iterator[Meaning]:
    """Yield what the program means to runs that have, and have not, passed its patches."""
    names = [node.name for node in nodes(life.version.program.block) if isinstance(node, Patched)]
    for mask in range(1 << len(names)):
        skipped = frozenset(name for bit, name in enumerate(names) if mask >> bit & 1)
        yield meaning_of(life.version.program, life.stand, skipped)


def _divergences(history: History) -> Iterator[str]:
    """Where a run diverges, nothing fresh was done."""
    for number, life in enumerate(history.lives, 1):
        if life.diverged and number == 1:
            yield f"life {number} diverged without a change: {life.waiting}"
        elif life.diverged:
            for event in history.events:
                if event.life == number and event.fact == "begin" and event.run == RUN:
                    yield f"life {number} diverged, after it had begun {event}"


def _checks(history: History) -> Iterator[str]:
    """`check` refuses what the run then refuses, and nothing else.

    What lies behind something fresh that is no effect (a decision, a read, a wait) it cannot know.
    """
    for number, life in enumerate(history.lives, 1):
        if life.check is None:
            continue
        refuses = life.check.fit not in (Fit.FITS, Fit.FAILS_AS_BEFORE)
        if refuses and not life.diverged and not life.died:
            yield f"life {number}: check refuses ({life.check.what}), and the run went on: {life.state}"
        expected = predict(life.version.program, life.before, life.stand)
        if life.diverged and not refuses and not expected.is_hidden and not expected.is_open:
            yield f"life {number}: check lets it through, and the run diverged: {life.waiting}"


def _unexpected(history: History) -> Iterator[str]:
    """Each life becomes what the rules say."""
    for number, life in enumerate(history.lives, 1):
        if life.check is None or life.died or life.why or life.state is State.CHECKPOINTED:
            continue
        expected = predict(life.version.program, life.before, life.stand)
        if expected.is_open:
            continue
        if (expected.fate is Fate.DIVERGES) is not life.diverged:
            missed = ", ".join(map(str, expected.missed)) or "nothing is missed"
            yield f"life {number} {'diverged' if life.diverged else 'went on'}; it {expected.fate} ({missed})"
        if expected.fate is Fate.ESCALATES and not _is_settled(history, number, expected.missed):
            missed = ", ".join(map(str, expected.missed))
            yield f"life {number} ended, and asked nobody what became of {missed}"


def _false_alarms(history: History) -> Iterator[str]:
    """Edits that change nothing for a run, or say what they change, are not refused."""
    edits: set[str] = set()
    for number, life in enumerate(history.lives, 1):
        edits.update(life.version.edits)
        if not edits <= HARMLESS:
            return
        says_kinds = all(past.says_kind for past in life.before)
        if life.diverged and (says_kinds or not edits & NEED_KINDS):
            yield f"life {number} diverged, although all its edits are harmless: {', '.join(sorted(edits))}"


def _is_settled(history: History, number: int, missed: Sequence[Past]) -> bool:
    """Return whether a person was asked in this life; or before, of the same start: the answer is kept."""
    starts = {(past.to, past.n) for past in missed}
    return any(
        event.fact == "settled"
        and (event.life == number or (event.life < number and (event.to, event.n) in starts))
        for event in history.events
    )


def _kind(life: Taken, lineage: str) -> str:
    decl = life.version.program.decls.get(lineage)
    return "action" if decl is None else decl.kind


def _key(life: Taken, lineage: str) -> str:
    decl = life.version.program.decls.get(lineage)
    return "" if decl is None else decl.key


def _gives_up(life: Taken, lineage: str) -> bool:
    """Return whether the code forgets a name that the step had, and has no more: then it is a new one."""
    decl = life.version.program.decls.get(lineage)
    names = () if decl is None else (decl.name, *decl.aliases)
    return any(f"_{lineage}_" in f"{name}_" and name not in names for name in life.version.program.forgets)


def _is_forgotten(life: Taken, lineage: str) -> bool:
    """Return whether the code gives up what was done under a name that the step has or had."""
    return any(f"_{lineage}_" in f"{name}_" for name in life.version.program.forgets)


def _shown(logical: Logical) -> str:
    lineage, to, n = logical
    return f"{lineage}({to}, {n})"
