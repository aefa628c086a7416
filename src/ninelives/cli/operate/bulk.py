"""`ninelives retry|pause|resume|cancel` of many runs: those of an agent, with a label or status, of late.

The runs are chosen first and counted; a person confirms. Then each is controlled by itself, durably. If we
die in the middle: the first ones are done, and the same command goes on with the rest.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any

import typer
from msgspec.structs import replace

from ninelives.cli.commands.control import DONE, retry_failed
from ninelives.cli.commands.ps import label_of, states_of
from ninelives.cli.options import EXIT_FAILED, age_ms, opened
from ninelives.cli.output import emit, emit_json, say
from ninelives.core.errors import NineLivesError, StoreError, UsageError
from ninelives.core.model.run import Control, RunQuery, RunRow, State
from ninelives.runtime.run import give_control
from ninelives.views.counted import counted
from ninelives.views.escape import shown

_PAGE = 1_000
_MOST_READ, _MOST_NAMES = 20_000, 20
_UNFINISHED = tuple(state for state in State if not state.is_final and state is not State.MOVED)
"""The states of runs that can be controlled here: one that was moved is refused, whenever it is asked."""


def bulk(
    url: str,
    action: str,
    *,
    agent: str | None,
    labels: Sequence[str],
    statuses: list[str],
    since: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Control all runs that fit. Exit 1 when some could not be controlled."""
    if agent is None and not labels and not statuses and since is None:
        raise UsageError(
            f"{action} needs runs", remedy="Name one, or choose by --agent, --label, --status, --since"
        )
    wanted = Control(action)
    with opened(url) as store:
        query = RunQuery(
            states=states_of(statuses) or ((State.FAILED,) if wanted is Control.RETRY else _UNFINISHED),
            agent=agent,
            labels=dict(label_of(label) for label in labels),
            changed_since_ms=None if since is None else store.now_ms() - age_ms(since),
            limit=_PAGE,
        )
        if agent is not None:
            _require_agent(store, agent)
        # All of them before the first is changed: a change moves runs from page to page.
        chosen = [run.id for run in _all(store, query) if _applies(run, wanted)]
        _confirm(store, action, chosen, yes=yes)
        done, refused = _apply(store, wanted, chosen)
    if as_json:
        failures = [{"run": run, "error": error} for run, error in refused]
        emit_json({"action": action, "chosen": len(chosen), "done": done, "failed": failures})
    else:
        for run, error in refused:
            say(f"run {run}: {error}")
        emit(
            f"{len(done)} of {counted(len(chosen), 'run')}: each {DONE[wanted]}" if chosen else "no runs fit"
        )
    if refused:
        raise typer.Exit(EXIT_FAILED)


def _all(store: Any, query: RunQuery) -> Iterator[RunRow]:
    while page := store.list_runs(query):
        yield from page
        query = replace(query, after=page[-1].number)


def _require_agent(store: Any, agent: str) -> None:
    """Raise UsageError when no run is of an agent: its name may be mistyped."""
    if store.list_runs(RunQuery(agent=agent, limit=1)):
        return
    counts = Counter(run.agent for run in islice(_all(store, RunQuery(limit=_PAGE)), _MOST_READ))
    names = [name for name, _ in counts.most_common(_MOST_NAMES)]
    close = get_close_matches(agent, counts, n=1)
    known = ", ".join([*close, *(name for name in names if name not in close)])
    raise UsageError(
        f"no run is of agent {agent!r}",
        remedy=f"The runs here are of {known}" if known else "There are no runs yet",
    )


def _applies(run: RunRow, wanted: Control) -> bool:
    """Return whether a control would change a run: what is done already is not done again."""
    if wanted is Control.PAUSE:
        return not run.paused
    if wanted is Control.RESUME:
        return run.paused
    if wanted is Control.RETRY:
        return run.state.is_final or run.state is State.ESCALATED  # the others go on by themselves
    return not run.cancelling or wanted is not Control.CANCEL


def _confirm(store: Any, action: str, chosen: Sequence[str], *, yes: bool) -> None:
    if not chosen:
        return
    agents = Counter(run.agent for name in chosen[:_PAGE] if (run := store.read_run(name)) is not None)
    counts = ", ".join(f"{number} of {name}" for name, number in agents.most_common(5))
    more = ", …" if len(agents) > 5 or len(chosen) > _PAGE else ""
    say(f"{counted(len(chosen), 'run fits', 'runs fit')} ({counts}{more})")
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            f"{action} of {counted(len(chosen), 'run')} needs a confirmation", remedy="Repeat it with --yes"
        )
    if not typer.confirm(shown(f"{action} {counted(len(chosen), 'run')}?"), default=False, err=True):
        raise typer.Exit(EXIT_FAILED)


def _apply(store: Any, wanted: Control, chosen: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    done: list[str] = []
    refused: list[tuple[str, str]] = []
    for name in chosen:
        # CRASH: those before are controlled, durably; the command, repeated, chooses only the others.
        try:
            if wanted is Control.RETRY:
                retry_failed(store, name)
            else:
                give_control(store, name, wanted)
        except StoreError:
            said = counted(len(chosen), "run is", "runs are")
            say(f"{len(done)} of {said} done; repeat the command for the others")
            raise
        except NineLivesError as error:
            refused.append((name, str(error)))
        else:
            done.append(name)
    return done, refused
