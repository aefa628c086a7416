"""`ninelives inbox`, `approve`, `deny`, `resolve`: list what waits for a person, and answer it.

No worker needs to hold the run meanwhile. An answer is durable when the command exits. Giving it is atomic:
if we die meanwhile, it was given or it was not, and giving it again is safe.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, Raw, UnsetType

from ninelives.cli.options import command, opened
from ninelives.cli.output import age, emit, emit_json, is_terminal, say
from ninelives.core.clock import moment
from ninelives.core.errors import UsageError
from ninelives.core.ids import check_id
from ninelives.core.journal.answers import Answer, Says, fitting
from ninelives.core.model.inbox import Item, ItemKind
from ninelives.core.model.run import State
from ninelives.runtime.inbox import find, from_json, give
from ninelives.store import Store
from ninelives.views.escape import shortened, shown
from ninelives.views.inbox_text import InboxEntry, entry, facts, is_signed, up_to_date, ways
from ninelives.views.position import Position

_VALUE_CHARACTERS = 2_000


def inbox(url: str, *, run: str | None, answered: bool, limit: int, as_json: bool) -> None:
    """List the items that wait for a person, oldest first."""
    with opened(url) as store:
        named = check_id(run, "run id") if run is not None else None
        found = store.list_inbox(run=named, answered=answered, limit=limit + 1)
        entries = [up_to_date(store, entry(item)) for item in found[:limit]]
        now = moment(store.now_ms()).timestamp()
    if as_json:
        emit_json(entries)
    elif entries:
        emit("\n\n".join(_page(one, now, url) for one in entries))
    else:
        say("no inbox items" if answered else "no open inbox items")
    if len(found) > limit:
        say("there are more: --limit shows more at once, --run shows the items of one run")


def answer(
    url: str, name: str, says: str, *, value: str | None = None, note: str, by: str | None, as_json: bool
) -> None:
    """Answer an item, named by its id, or by its run's id when only one item of the run is open."""
    given: Raw | UnsetType = from_json(value, "the value") if value is not None else UNSET
    person = check_id(by, "name in --by") if by is not None else None
    with opened(url) as store:
        item = give(store, find(store, check_id(name, "item id")), Answer(Says(says), given, note), person)
        report(store, item, says, as_json=as_json)


def report(store: Store, item: Item, says: str, *, as_json: bool) -> None:
    """Print that an item is answered, and that its run goes on."""
    run, given = store.read_run(item.run), entry(item)
    if as_json:
        emit_json(given)
        return
    emit(shown(f"{says} by {item.by}: {item.kind} {item.id} of run {item.run}"))
    if is_signed(item.to) and given.answer is not None:
        if given.answer.signed is None:
            say("note: it is not signed. Workers that know the approvers ask again; --sign signs an answer")
        else:
            say("note: a worker verifies the signature. If it does not count, ninelives inbox says why")
    if run is not None and run.state is State.CHECKPOINTED:
        say(f"run {item.run!r} continues as soon as a worker claims it")


def resolution(
    *, happened: bool, not_happened: bool, answer: str | None, retry: bool, fail: bool, result: str | None
) -> tuple[Says, str | None]:
    """Return the kind of answer that the options of `resolve` name, and its value.

    Raises UsageError unless the options name exactly one kind.
    """
    named = {
        Says.HAPPENED: happened,
        Says.NOT_HAPPENED: not_happened,
        Says.VALUE: answer is not None,
        Says.RETRY: retry,
        Says.FAIL: fail,
    }
    given = [says for says, is_given in named.items() if is_given]
    if len(given) != 1:
        raise UsageError(
            "resolve needs exactly one answer",
            remedy="Give one of --happened, --not-happened, --answer, --retry, --fail",
        )
    if result is not None and given != [Says.HAPPENED]:
        raise UsageError("--result goes with --happened", remedy="Leave it out, or give --happened")
    return given[0], answer if answer is not None else result


def waits(found: Position) -> str:
    """Return as text what a run waits for that no worker can provide."""
    if found.paused:
        return "for a person: it is paused"
    return found.waits or "for a person"


def say_waiting(found: Position, url: str) -> None:
    """Print to stderr what a run waits for and how to answer."""
    say(f"run {found.id!r} waits {waits(found)}")
    if found.paused:
        say(f"resume it with: {command(['resume', found.id], url)}")
    for item in found.inbox:
        request = item.body if isinstance(item.body, dict) else {}
        takes = fitting(ItemKind(item.kind), happened=bool(request.get("happened")))
        texts = (str(request.get(name) or "").rstrip(".") for name in ("what", "remedy"))
        say_item(item.kind, item.id, ". ".join(filter(None, texts)), ways(takes, item.id, item.to), url)


def say_item(kind: str, id: str, what: str, how: Iterable[list[str]], url: str) -> None:
    """Print to stderr what an item asks and how to answer it."""
    say(f"  {kind} {id}: {what}".rstrip(" :"))
    for words in how:
        say(f"    answer with: {command(words, url)}")


def _page(one: InboxEntry, now: float, url: str) -> str:
    """Return one item as text: the request, the reason, evidence, deadline, and how to answer."""
    waits = f"{age(now - one.opened.timestamp())} old"
    if one.deadline is not None:
        left = one.deadline.timestamp() - now
        waits += f", {age(left)} left" if left > 0 else ", its deadline has passed"
    outcome = f", {one.state}" + (f" by {one.by}: {one.answer.says}" if one.answer is not None else "")
    lines = [shown(f"{one.id}  {one.kind} of run {one.run}, {waits}{outcome if one.answered else ''}")]
    lines.append(f"  {shortened(one.what, _VALUE_CHARACTERS)}")
    lines += [f"    {shown(name)} {shortened(text, _VALUE_CHARACTERS)}" for name, text in facts(one)]
    if one.answered is None:
        how = [command(words, url) for words in ways(one.takes, one.id, one.to)]
        lines += [f"  $ {line}" for line in how] if is_terminal() else [f"  answer with: {' | '.join(how)}"]
    return "\n".join(lines)
