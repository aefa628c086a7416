"""A notice: what a person needs to know, escaped and bounded, and the command that answers it.

It never has a link that acts: programs that scan mail follow links. The link leads to the dashboard, where a
person acts. All texts of runs are escaped as on a terminal (`views.escape`): none can forge a line or a
header.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.clock import moment
from ninelives.core.model.inbox import Item
from ninelives.core.model.run import RunRow
from ninelives.ops.notify.entry import OutboxEntry, message_id
from ninelives.ops.notify.kinds import FAILURE, NoticeSeverity, severity_of
from ninelives.views.escape import shortened, shown
from ninelives.views.inbox_text import InboxEntry, entry, facts, ways

_VALUE_CHARACTERS, _TITLE_CHARACTERS, _MOST_FACTS = 2_000, 120, 40
_FACTS_CHARACTERS = 16_000

Command = Callable[[Sequence[str]], str]
"""Turns words into a `ninelives` command line to paste, for the store in question."""


class Notice(Struct, frozen=True, kw_only=True):
    """What is sent. `facts` are pairs of a name and a text; `answers` are commands; `reminder` counts."""

    id: str
    kind: str
    severity: NoticeSeverity
    title: str
    what: str
    at: str
    store: str
    item: str = ""
    run: str = ""
    agent: str = ""
    step: str = ""
    deadline: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    answers: tuple[str, ...] = ()
    link: str = ""
    reminder: int = 0


class Style(Struct, frozen=True, kw_only=True):
    """How notices are written: for which store, with which commands and links."""

    store: str
    command: Command
    dashboard_url: str = ""


def of_item(style: Style, sent: OutboxEntry, item: Item, run: RunRow | None, *, arguments: bool) -> Notice:
    """Return the notice of an inbox item."""
    one = entry(item)
    known = facts(one if arguments else replace(one, arguments={}))
    if not arguments and one.arguments:
        known.append(("arguments", "not shown here: " + style.command(["inbox", "--run", item.run])))
    what = shortened(one.what, _VALUE_CHARACTERS)
    return _written(
        style,
        sent,
        title=f"{item.kind}: {what}",
        what=what,
        item=item.id,
        run=shown(item.run),
        agent=shown(run.agent) if run is not None else "",
        step=shown(one.step),
        deadline=moment(item.deadline_ms).isoformat() if item.deadline_ms is not None else "",
        facts=_bounded(known),
        answers=_answers(style, one),
        link=f"{style.dashboard_url}/inbox#{quote(item.id, safe='')}" if style.dashboard_url else "",
    )


def of_failure(style: Style, sent: OutboxEntry, run: RunRow) -> Notice:
    """Return the notice of a run that has failed."""
    what = f"run {run.id} failed: {run.last_error or 'see its history'}"
    return _written(
        style,
        sent,
        title=f"{FAILURE}: run {run.id} of {run.agent}",
        what=shortened(what, _VALUE_CHARACTERS),
        run=shown(run.id),
        agent=shown(run.agent),
        facts=_bounded([(f"label {name}", value) for name, value in run.labels.items()]),
        answers=(style.command(["show", run.id]), style.command(["retry", run.id])),
        link=f"{style.dashboard_url}/runs/{quote(run.id, safe='')}" if style.dashboard_url else "",
    )


def of_state(
    style: Style,
    sent: OutboxEntry,
    what: str,
    known: Sequence[tuple[str, str]],
    commands: Sequence[Sequence[str]],
) -> Notice:
    """Return the notice of something that concerns many runs, or the whole store."""
    return _written(
        style,
        sent,
        title=f"{sent.event.kind}: {what}",
        what=shortened(what, _VALUE_CHARACTERS),
        agent=shown(sent.event.agent),
        facts=_bounded(known),
        answers=tuple(style.command(words) for words in commands),
        link=style.dashboard_url,
    )


def _written(style: Style, sent: OutboxEntry, *, title: str, **fields: object) -> Notice:
    event = sent.event
    said = shortened(title, _TITLE_CHARACTERS)
    return Notice(
        id=message_id(sent),
        kind=event.kind,
        severity=severity_of(event.kind),
        title=f"[ninelives] {'still open: ' if sent.round else ''}{said}",
        at=moment(event.at_ms).isoformat(),
        store=shown(style.store),
        reminder=sent.round,
        **fields,  # type: ignore[arg-type]
    )


def _answers(style: Style, one: InboxEntry) -> tuple[str, ...]:
    return tuple(style.command(words) for words in ways(one.takes, one.id, one.to))


def _bounded(known: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return facts, escaped: each cut to what the inbox shows, and all of them to a bound."""
    found, room = [], _FACTS_CHARACTERS
    for name, text in known[:_MOST_FACTS]:
        if room <= 0:
            break
        found.append((shortened(name, 100), shortened(text, min(_VALUE_CHARACTERS, room))))
        room -= len(found[-1][1])
    if len(found) < len(known):
        found.append(("and", f"{len(known) - len(found)} more, which ninelives inbox shows"))
    return tuple(found)


def as_json(notice: Notice) -> bytes:
    """Return the body of a webhook, as Standard Webhooks shape it: type, timestamp, data."""
    data = msgspec.to_builtins(notice) | {
        "severity": notice.severity.name.lower(),
        "facts": [{"name": name, "text": text} for name, text in notice.facts],
    }
    return msgspec.json.encode({"type": f"ninelives.{notice.kind}", "timestamp": notice.at, "data": data})


def as_text(notice: Notice, characters: int) -> str:
    """Return the notice as lines for a person, cut to about that many characters; the commands always fit."""
    lines = [notice.what]
    named = [("run", notice.run), ("agent", notice.agent), ("item", notice.item), ("until", notice.deadline)]
    lines += [f"  {name} {text}" for name, text in named if text]
    lines += [f"  {name} {text}" for name, text in notice.facts]
    end = [f"$ {line}" for line in notice.answers]
    end += [notice.link] if notice.link else []
    end.append(f"{notice.severity.name.lower()}, {notice.at}, {notice.store}")
    closing = "\n".join(end)
    opening = "\n".join(lines)
    room = max(200, characters - len(closing))
    if len(opening) > room:
        opening = f"{opening[:room]}…"
    return f"{opening}\n{closing}"
