"""`ninelives inbox`, `approve`, `deny`, `resolve`: what waits for a person, and what a person says to it.

Nobody has to work on the run meanwhile; an answer is durable when the command has ended. Killed in the
middle, it was given or it was not, and giving it again is safe.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ninelives.cli.hints import command
from ninelives.cli.options import existing
from ninelives.cli.output import age, emit, emit_json, is_terminal, say
from ninelives.core.errors import UsageError
from ninelives.core.ids import check_id
from ninelives.core.journal.answers import Answer, Says, fitting
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import State
from ninelives.runtime.inbox import find, from_json, give
from ninelives.stores.open import open_store
from ninelives.views.escape import shortened, shown
from ninelives.views.inbox_text import InboxEntry, entry, facts, up_to_date, ways
from ninelives.views.position import Position
from ninelives.views.records_text import moment

_VALUE_CHARACTERS = 2_000


def inbox(url: str, *, run: str | None, answered: bool, limit: int, as_json: bool) -> None:
    """List what waits for a person, oldest first."""
    store = open_store(existing(url))
    try:
        named = check_id(run, "run id") if run is not None else None
        found = store.list_inbox(run=named, answered=answered, limit=limit + 1)
        entries = [up_to_date(store, entry(item)) for item in found[:limit]]
        now = moment(store.now_ms()).timestamp()
    finally:
        store.close()
    if as_json:
        emit_json(msgspec.json.encode(entries))
    elif entries:
        emit("\n\n".join(_page(one, now, url) for one in entries))
    else:
        say("nobody is waited for")
    if len(found) > limit:
        say("there are more: --limit shows more at once, --run those of one run")


def answer(
    url: str, name: str, says: str, *, value: str | None = None, note: str, by: str | None, as_json: bool
) -> None:
    """Answer an item, named by its id or by its run when only one of it waits."""
    given: Raw | UnsetType = from_json(value, "the value") if value is not None else UNSET
    who = check_id(by, "name of who answers") if by is not None else None
    store = open_store(existing(url))
    try:
        item = give(store, find(store, check_id(name, "item id")), Answer(Says(says), given, note), who)
        run = store.read_run(item.run)
    finally:
        store.close()
    if as_json:
        emit_json(msgspec.json.encode(entry(item)))
        return
    emit(shown(f"{says} by {item.by}: {item.kind} {item.id} of run {item.run}"))
    if run is not None and run.state is State.CHECKPOINTED:
        say(f"run {item.run!r} goes on as soon as a worker takes it")


def resolution(
    *, happened: bool, not_happened: bool, answer: str | None, retry: bool, fail: bool, result: str | None
) -> tuple[Says, str | None]:
    """Return what `resolve` was told to say, and the value with it.

    Raises UsageError unless it is one thing.
    """
    told = {
        Says.HAPPENED: happened,
        Says.NOT_HAPPENED: not_happened,
        Says.VALUE: answer is not None,
        Says.RETRY: retry,
        Says.FAIL: fail,
    }
    said = [says for says, is_said in told.items() if is_said]
    if len(said) != 1:
        raise UsageError(
            "resolve says one thing",
            remedy="Give one of --happened, --not-happened, --answer, --retry, --fail",
        )
    if result is not None and said != [Says.HAPPENED]:
        raise UsageError("--result goes with --happened", remedy="Leave it out, or say --happened")
    return said[0], answer if answer is not None else result


def waits(found: Position) -> str:
    """Say what a run waits for that no worker can give."""
    if found.paused:
        return "for a person: it is paused"
    return found.waits or "for a person"


def tell_waiting(found: Position, url: str) -> None:
    """Say what a run waits for and how to answer, on stderr."""
    say(f"run {found.id!r} waits {waits(found)}")
    if found.paused:
        say(f"let it go on with: {command(['resume', found.id], url)}")
    for item in found.inbox:
        told = item.body if isinstance(item.body, dict) else {}
        takes = fitting(ItemKind(item.kind), happened=bool(told.get("happened")))
        tell_item(item.kind, item.id, f"{told.get('what', '')} {told.get('remedy', '')}", takes, url)


def tell_item(kind: str, id: str, what: str, takes: Iterable[Says], url: str) -> None:
    """Say what an item asks and how to answer it, on stderr."""
    say(f"  {kind} {id}: {what}".rstrip(" :"))
    for words in ways(takes, id):
        say(f"    answer with: {command(words, url)}")


def _page(one: InboxEntry, now: float, url: str) -> str:
    """Say all of one item: what, why, evidence, deadline, and how to answer."""
    waits = f"{age(now - one.opened.timestamp())} old"
    if one.deadline is not None:
        left = one.deadline.timestamp() - now
        waits += f", {age(left)} left" if left > 0 else ", its time is over"
    said = f", {one.state}" + (f" by {one.by}: {one.answer.says}" if one.answer is not None else "")
    lines = [shown(f"{one.id}  {one.kind} of run {one.run}, {waits}{said if one.answered else ''}")]
    lines.append(f"  {shortened(one.what, _VALUE_CHARACTERS)}")
    lines += [f"    {shown(name)} {shortened(text, _VALUE_CHARACTERS)}" for name, text in facts(one)]
    if one.answered is None:
        how = [command(words, url) for words in ways(one.takes, one.id)]
        lines += [f"  $ {line}" for line in how] if is_terminal() else [f"  answer with: {' | '.join(how)}"]
    return "\n".join(lines)
