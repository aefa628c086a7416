"""`ninelives cache report`, `clear`: what caches of model calls hold and save, and removing it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ninelives.cli.options import AsJson, Url
from ninelives.stores.open import DEFAULT_URL

app = typer.Typer(help="Show what caches of model calls hold, and remove answers.", no_args_is_help=True)
Step = Annotated[str | None, typer.Option("--step", help="Only this step, by its name.")]


@app.command()
def report(step: Step = None, store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show the answers that are kept, by step, and how often they were used, by agent.

    Uses are counted with each renewal of a worker's lease: those of the last seconds come later.
    """
    from ninelives.cli.options import opened
    from ninelives.cli.output import emit, emit_json, emit_table
    from ninelives.models import report as cache_report

    with opened(store) as open_store:
        found = cache_report.report(open_store, step)
    if as_json:
        emit_json(found)
        return
    if not found.steps:
        emit("no answers are kept")
    else:
        emit_table(
            ("step", "answers", "expired", "unusable", "bytes", "tokens"), [_row(one) for one in found.steps]
        )
    if compared := [one for one in found.steps if one.compared]:
        emit_table(
            ("step", "compared by meaning", "disagreed", "at most (95 %)"), [*map(_compared, compared)]
        )
    if found.agents:
        columns = ("agent", "exact hits", "words hits", "meaning hits", "misses", "tokens saved")
        numbers = [(one.exact, one.words, one.meaning, one.missed, one.tokens) for one in found.agents]
        emit_table(
            columns,
            [(one.agent, *map("{:,}".format, of)) for one, of in zip(found.agents, numbers, strict=True)],
        )


def _row(one: Any) -> tuple[str, ...]:
    from ninelives.views.escape import shown

    numbers = (one.usable, one.expired, one.unusable, one.bytes, one.tokens)
    return (shown(one.step), *(f"{number:,}" for number in numbers))


def _compared(one: Any) -> tuple[str, ...]:
    from ninelives.views.escape import shown

    return shown(one.step), f"{one.compared:,}", f"{one.disagreed:,}", f"{one.at_most:.2%}"


@app.command()
def clear(
    step: Step = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=VALUE", help="Only answers with this label in their scope."),
    ] = None,
    answer: Annotated[
        str, typer.Option("--answer", help="Only the answer with this name, or its beginning.")
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="All answers of all steps.")] = False,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Remove answers, so that the model is asked again. Runs that have used one keep it in their journals."""
    from ninelives.cli.commands.ps import label_of
    from ninelives.cli.options import opened
    from ninelives.cli.output import emit, emit_json
    from ninelives.core.errors import UsageError
    from ninelives.models import upkeep
    from ninelives.views.counted import counted

    wanted = dict(label_of(one) for one in labels or ())
    if not (step or wanted or answer or everything):
        raise UsageError(
            "cache clear without saying what",
            remedy="Give --step, --label or --answer; or --all for everything",
        )
    with opened(store) as open_store:
        removed = upkeep.clear(open_store, step=step, labels=wanted, answer=answer)
    if as_json:
        emit_json({"removed": removed})
    else:
        emit(f"removed {counted(removed, 'answer')}")
