"""`ninelives show` and `snapshot`: everything that is known of one run, on the screen or in a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import typer

from ninelives.cli.commands.ps import session_text, status_of
from ninelives.cli.options import EXIT_STORE, opened
from ninelives.cli.output import age, emit, emit_json, emit_table, is_terminal, say, when_text
from ninelives.core.clock import moment
from ninelives.core.ids import check_id
from ninelives.core.model.run import Record, State
from ninelives.core.step_ids import step_text
from ninelives.governance.halts import Halt, read_halts
from ninelives.views import records_text
from ninelives.views.checkpoint import Operation, Resource, StartedAction
from ninelives.views.counted import counted
from ninelives.views.escape import shortened, shown
from ninelives.views.position import Position, Waiting, position, unknown
from ninelives.views.sessions import SessionLife
from ninelives.views.waiting import waiting

COLUMNS = ("seq", "time", "kind", "branch", "step", "took", "value")
_VALUE_CHARACTERS = 400


def show(url: str, run: str, *, log: bool, limit: int, as_json: bool) -> None:
    """Print one run with its last `limit` records; 0 prints all."""
    run = check_id(run, "run id")
    with opened(url) as store:
        found, records = position(store, run)
        now = moment(store.now_ms()).timestamp()
        halts = _halts(store, found)
    if log:
        _show_log(records, as_json)
    elif as_json:
        history = records_text.lines(_last(records, limit))
        emit_json(msgspec.structs.asdict(found) | {"halts": halts, "history": history})
    else:
        held = [("halted", shown(f"{one.what}, by {one.by}: {one.reason} ({one.id})")) for one in halts]
        emit("\n".join(f"{name:<13}{text}" for name, text in (*_facts(found, now), *held)))
        _show_history(records, limit)
    if found.fault:
        say(found.fault)
        raise typer.Exit(EXIT_STORE)


def _halts(store: Any, run: Position) -> list[Halt]:
    """Return the halts in force that may hold calls of a run."""
    if run.status.is_final:
        return []
    found = read_halts(store, store.now_ms())
    return [one for one in found if one.fits(run=run.id, agent=run.agent, labels=run.labels)]


def snapshot(url: str, run: str, out: Path | None, *, as_json: bool) -> None:
    """Write everything that is stored of a run to a file, and print the file's path."""
    from ninelives.ops.snapshot import take, write

    run = check_id(run, "run id")
    with opened(url) as store:
        if store.read_run(run) is None:
            raise unknown(run)
        taken = take(store, run)
    path = write(taken, out)
    if as_json:
        fields = {"path": str(path), "run": run, "records": len(taken["records"]), **taken["chain"]}
        emit_json(fields)
    else:
        emit(shown(str(path)))


def _show_log(records: Sequence[Record], as_json: bool) -> None:
    lines = records_text.log_lines(records)
    if as_json:
        emit_json(lines)
    elif lines:
        emit("\n".join(f"{when_text(one.at)} {shown(one.level):<7} {shown(one.line)}" for one in lines))


def _show_history(records: Sequence[Record], limit: int) -> None:
    last = _last(records, limit)
    if not last:
        return
    emit("")
    if len(last) < len(records):
        emit(f"the last {len(last)} of {counted(len(records), 'record')}; --limit 0 shows all")
    rows = []
    for line in records_text.lines(last):
        step = f"{line.step}[{line.number}]" if line.number is not None else line.step
        day = "%m-%d" if is_terminal() else "%Y-%m-%d"
        when = f"{line.at.strftime(f'{day} %H:%M:%S.%f')[:-3]}Z"
        took = f"{line.took_ms} ms" if line.took_ms is not None else ""
        kind = f"{line.kind} of {line.step_kind}" if line.step_kind is not None else line.kind
        rows.append((str(line.seq), when, kind, line.branch, step, took, records_text.with_verdict(line)))
    emit_table(COLUMNS, rows)


def _last(records: Sequence[Record], limit: int) -> Sequence[Record]:
    return records if limit <= 0 else records[-limit:]


def _facts(run: Position, now: float) -> Iterator[tuple[str, str]]:
    yield "run", shown(run.id)
    yield "agent", shown(run.agent)
    yield "status", status_of(run)
    yield "position", _where(run)
    yield from _listed("holds", [_resource(one) for one in run.resources], always=False)
    yield from _listed("pending", [_pending(one, now) for one in run.pending])
    yield from _listed("in doubt", [_pending(one, now) for one in run.in_doubt])
    yield from _listed("effects", [_effect(one, now) for one in run.effects], always=False)
    yield "waits", shortened(waiting(run, now), _VALUE_CHARACTERS) or "for nothing"
    yield from _listed("inbox", [_question(one, now) for one in run.inbox], always=False)
    signals = [f"{shown(one.name)}, sent {age(now - one.at.timestamp())} ago" for one in run.signals]
    yield from _listed("signals", signals, always=False)
    yield "last error", _error(run)
    if run.tokens_in or run.tokens_out:
        yield "tokens", f"{run.tokens_in:,} in, {run.tokens_out:,} out"
    yield "session", _session(run)
    yield "next wake-up", _wake_up(run, now)
    died = f", {counted(run.deaths, 'death')} without progress" if run.deaths else ""
    yield "epoch", f"{run.epoch}{'' if run.status.is_final else died}"
    if run.last_recovery:
        yield "recovered", shown(run.last_recovery)
    yield from _listed("stacks", [shown(line) for line in run.last_stacks], always=False)
    if run.labels:
        yield "labels", shown(", ".join(f"{name}={value}" for name, value in run.labels.items()))
    if run.parent is not None:
        yield "parent", shown(run.parent)
    yield "created", f"{when_text(run.created)}, {age(now - run.created.timestamp())} ago"
    yield "updated", f"{when_text(run.updated)}, {age(now - run.updated.timestamp())} ago"
    unread = "encrypted" if "is encrypted with" in run.fault else "DAMAGED"
    verified = unread if run.fault else f"verified, head {run.head}"
    yield "journal", f"{counted(run.records, 'record')}, {verified}"
    if run.salvaged:
        yield "salvaged", shortened(run.salvaged, _VALUE_CHARACTERS)
    if run.result is not None:
        yield "result", shortened(bytes(run.result).decode(), _VALUE_CHARACTERS)


def _where(run: Position) -> str:
    progress = f"step {shown(str(run.progress))}; " if run.progress is not None else ""
    steps = "unknown steps" if run.steps is None else counted(run.steps, "step")
    return f"{progress}{steps} recorded in turn {run.turn}"


def _listed(name: str, texts: Sequence[str], *, always: bool = True) -> Iterator[tuple[str, str]]:
    if not texts:
        if always:
            yield name, "none"
        return
    for count, text in enumerate(texts):
        yield name if count == 0 else "", text


def _pending(one: Operation, now: float) -> str:
    arguments = ", ".join(f"{name}={value}" for name, value in one.arguments.items())
    return shown(f"{one.step}({arguments}), begun {age(now - one.at.timestamp())} ago, record {one.seq}")


def _resource(one: Resource) -> str:
    seen = ", ".join(f"{name} {value[:12]}" for name, value in one.evidence.items())
    return shown(f"{one.what}" + (f" ({seen})" if seen else ""))


def _effect(one: StartedAction, now: float) -> str:
    times = "" if one.starts == 1 else f", started {counted(one.starts, 'time')}"
    key = f", key {one.key}" if one.key else ""
    return shown(f"{one.step}: {one.state}{times}{key}, {age(now - one.at.timestamp())} ago")


def _question(item: Waiting, now: float) -> str:
    what = item.body.get("what", item.body) if isinstance(item.body, dict) else item.body
    remedy = item.body.get("remedy") if isinstance(item.body, dict) else None
    evidence = item.body.get("evidence") if isinstance(item.body, dict) else None
    if isinstance(evidence, dict) and "asked again" in evidence:
        what = f"{what} (asked again: {evidence['asked again']})"
    to = f" to {item.to}" if item.to else ""
    text = f"{item.kind}{to}, {age(now - item.opened.timestamp())} old, item {item.id}: {what}"
    return shown(f"{text}. {remedy}" if remedy else text)


def _error(run: Position) -> str:
    failed = run.last_error
    if run.retrying is not None and not run.status.is_final:
        return shortened(
            f"{run.retrying.error} (in step {step_text(run.retrying.step)}, which is retried)", 400
        )
    if failed is None:
        return "none"
    where = f"in step {failed.step}" if failed.step else "of the run itself"
    return f"{shortened(str(failed), _VALUE_CHARACTERS)} ({shown(where)}, record {failed.seq})"


def _session(run: Position) -> str:
    if run.session is None:
        return "none"
    if run.session.state is SessionLife.ALIVE:
        process = f"pid {run.session.pid} on {run.session.host}"
        lease = f"lease {run.session.lease_left_ms / 1000:.0f} s"
        return shown(f"{run.session.id}: alive, {process}, {lease}")
    return shown(f"{session_text(run.session)}: the run continues when a worker takes it over")


def _wake_up(run: Position, now: float) -> str:
    if run.paused:
        return "never while it is paused"
    if run.next_wake_up is None:
        if run.status is not State.RUNNING:
            return "none"
        is_alive = run.session is not None and run.session.state is SessionLife.ALIVE
        return "a worker executes it" if is_alive else "now: it waits for a worker"
    left = run.next_wake_up.timestamp() - now
    return f"{when_text(run.next_wake_up)}, in {age(left)}" if left > 0 else "now: it waits for a worker"
