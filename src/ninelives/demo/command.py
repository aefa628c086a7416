"""Parse the options of `ninelives demo`, play its two stages on chaos, and print the report."""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from rich.console import Console

from ninelives.chaos.campaign.campaign import failure, why_unended
from ninelives.chaos.findings.effects import declarations, names
from ninelives.chaos.report.command import ending_in_order
from ninelives.chaos.trial.fork_server import ForkServers
from ninelives.chaos.trial.scenarios import Calm
from ninelives.chaos.trial.scratch_store import SQLITE, remove, urls
from ninelives.chaos.trial.trial import ChaosFailed, Ground, TrialStage, TrialTarget
from ninelives.chaos.trial.work_tree import Tree
from ninelives.core.errors import NineLivesError, UsageError
from ninelives.core.journal.replay import read_body
from ninelives.core.model.run import Record, State
from ninelives.demo import model
from ninelives.demo.agent import tickets
from ninelives.demo.board import Board, Watcher
from ninelives.demo.judge import DemoReport, DemoStage, fields, judge
from ninelives.demo.kills import Strikes, plan
from ninelives.demo.screen import Lively, Plain, Quiet, conclude
from ninelives.demo.shop import Shop, serving
from ninelives.engine.commit import large_bodies
from ninelives.store import Store
from ninelives.stores.open import open_store
from ninelives.stores.url import backend_of, is_server, part_in, scheme_of, with_part

LIMIT_SECONDS, LIMIT_SECONDS_REAL = 40.0, 600.0
EXIT_MISSED, EXIT_INTERRUPTED = 1, 130
_NAMES = ("calm", "crashed")
_GIVEN_CHARACTERS = 24
"""How much of a given name is kept before ours: servers limit the length of names."""


def run(argv: Sequence[str] | None) -> int:
    """Play both stages and print the numbers; the exit code is 0 if all targets are met."""
    given = _options(argv)
    console = Console(stderr=given.json)
    since = time.monotonic()
    try:
        with ending_in_order(), tempfile.TemporaryDirectory(prefix="ninelives-demo-") as home:
            report = _shown(Path(home).resolve(), given, console)
    except NineLivesError as error:
        console.print(f"the demo failed: {error}", markup=False, soft_wrap=True)
        return EXIT_MISSED
    except KeyboardInterrupt:
        console.print("interrupted; all processes have been ended and nothing is left behind")
        return EXIT_INTERRUPTED
    seconds = time.monotonic() - since
    if given.json:
        sys.stdout.write(msgspec.json.encode(fields(report, seconds)).decode() + "\n")
    else:
        conclude(console, report, seconds)
    return 0 if report.is_met else EXIT_MISSED


def _shown(home: Path, given: argparse.Namespace, console: Console) -> DemoReport:
    if given.json:
        return _both(home, given, Watcher())
    kind = "a scripted model" if model.is_scripted() else f"a model of {model.provider()}"
    console.print(
        f"A support agent with {kind} works on {given.tickets} tickets: first without crashes, then with "
        f"its worker killed up to {given.kills} times (seed {given.seed}).",
        highlight=False,
        soft_wrap=True,
    )
    with Lively(console) if console.is_terminal else Plain(console) as watcher:
        return _both(home, given, watcher)


def _both(home: Path, given: argparse.Namespace, watcher: Watcher) -> DemoReport:
    """Play the stage without crashes, then the one with crashes; each has its own store and shop."""
    stores = on_server(given.store) if given.store else {}
    try:
        with ForkServers(backend_of(given.store or SQLITE)) as fork_servers:
            report = _compared(_Stages(home, given, fork_servers, stores), watcher)
        if given.keep and stores:
            listing = _list_command(stores["crashed"])
            watcher.say(f"the runs are kept on the server; list them with: {listing}")
        return report
    finally:
        if not given.keep:
            clear(stores, watcher)


def _compared(stages: _Stages, watcher: Watcher) -> DemoReport:
    given = stages.given
    calm = stages.play(Calm("without crashes"), Quiet(watcher), Shop())
    if not calm.trial.has_ended or calm.trial.error:
        why = failure(calm.trial) if calm.trial.error else why_unended(calm.trial)
        raise ChaosFailed(
            f"only {len(calm.results)} of {given.tickets} tickets completed even without crashes: {why}"
        )
    watcher.say(f"without crashes: {given.tickets} of {given.tickets} tickets completed; now with kill -9")
    declared = declarations(calm.trial)
    acting = [step for step, name in names(calm.trial).items() if not declared[name].is_question]
    strikes = Strikes(plan(given.kills, Random(given.seed)), acting)
    crashed = stages.play(strikes, watcher, Shop(is_forgetful=given.fault == "forgetful-shop"))
    if left := len(strikes.left(crashed.trial.lines)):
        watcher.say(f"all tickets were done; {left} of the kills were not needed")
    if crashed.trial.why:
        watcher.say(f"not all tickets were done: {why_unended(crashed.trial)}")
    return judge(calm, crashed, is_scripted=model.is_scripted())


class _Stages:
    """Plays stages: each is one trial of chaos, a run of `agent.desk` with one child run per ticket."""

    def __init__(
        self, home: Path, given: argparse.Namespace, fork_servers: ForkServers, stores: Mapping[str, str]
    ) -> None:
        self.given = given
        self._home, self._fork_servers, self._urls = home, fork_servers, list(stores.values())
        (home / "tree").mkdir()
        self._tree = Tree(home / "tree")
        self._played = 0

    def play(self, scenario: Calm, watcher: Watcher, shop: Shop) -> DemoStage:
        """Play one stage until all tickets end or time is up; a ticket that has not ended then is lost."""
        number, self._played = self._played, self._played + 1
        url = self._url(number)
        bill = self._home / f"bill-{number}"
        limit = LIMIT_SECONDS if model.is_scripted() else LIMIT_SECONDS_REAL
        with serving(shop) as address, closing(open_store(url)) as store:
            board = Board(tickets(self.given.tickets), watcher, lambda runs: _journals(store, runs))
            environment = {"NINELIVES_DEMO_SHOP": address, "NINELIVES_DEMO_BILL": str(bill)}
            ground = Ground(
                fork_servers=self._fork_servers,
                home=self._home,
                tree=self._tree,
                target=TrialTarget("ninelives.demo.agent:desk", (str(self.given.tickets),)),
                url=lambda *_: url,
                limit_seconds=limit,
                environment=environment,
            )
            trial = TrialStage(ground, scenario, number, {}, board.follow).play(limit / 2, limit / 2)
            journals = _journals(store, list(board.rows))
            results = _results(store, board, journals)
        changed = sum(
            list(journals[run][: len(seen)]) != list(seen)
            for checkpoint in board.checkpoints
            for run, seen in checkpoint.items()
        )
        lines = [json.loads(line) for line in bill.read_text().splitlines()] if bill.exists() else []
        return DemoStage(trial, board, results, changed, shop.ledger, lines)

    def _url(self, number: int) -> str:
        return self._urls[number] if self._urls else urls(SQLITE)(number, self._home / f"trial-{number}")


def _journals(store: Store, runs: Sequence[str]) -> dict[str, Sequence[Record]]:
    return {run: store.load_journal(run, since=0).records for run in runs if store.read_run(run) is not None}


def _results(store: Store, board: Board, journals: Mapping[str, Sequence[Record]]) -> dict[str, Any]:
    """Return the replies of the completed tickets, and show how all ended."""
    results = {}
    for run, records in journals.items():
        row = store.read_run(run)
        if row is None:
            continue
        board.rows[run].state = row.state.value
        if row.state is State.COMPLETED:
            end = read_body(large_bodies.whole(store, records)[-1])
            results[run] = msgspec.json.decode(end.v or b"null")
    board.follow(())
    return results


# The server ---------------------------------------------------------------------------------------


def on_server(url: str) -> dict[str, str]:
    """Return the store URLs of both stages on a server: a new schema or prefix for each.

    They are removed at the end. If the demo is killed they stay, under names that contain "demo". The names
    start with the one in the URL, for servers that permit only such names.
    Raises UsageError for a URL that names no server.
    """
    if not is_server(url):
        raise UsageError(
            f"{scheme_of(url)}: names no server; without --store the demo uses temporary files",
            remedy="Omit --store, or use postgresql://HOST/DATABASE or redis://HOST",
        )
    given = (part_in(url) or "")[:_GIVEN_CHARACTERS]
    mark = "_".join(filter(None, (given, "demo", secrets.token_hex(3))))
    return {stage: with_part(url, f"{mark}_{stage}") for stage in _NAMES}


def clear(stores: Mapping[str, str], watcher: Watcher) -> None:
    """Remove the stages' stores from the server; say so if it refuses."""
    try:
        for url in stores.values():
            remove(url)
    except NineLivesError as error:
        parts = " and ".join(str(part_in(url)) for url in stores.values())
        watcher.say(f"could not remove {parts} from the server: {error}")


def _list_command(url: str) -> str:
    """Return the command that lists the runs of a stage, without the password."""
    with closing(open_store(url)) as store:
        return shlex.join(["ninelives", "ps", "--all", "--store", store.url])


# Options ------------------------------------------------------------------------------------------


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="ninelives demo",
        description="Kill a support agent's worker again and again, and measure how its runs recover.",
    )
    parser.add_argument("--seed", type=int, default=9, help="seed of the kills' moments (default 9)")
    parser.add_argument(
        "--tickets", type=_positive, default=6, help="number of tickets to work on (default 6)"
    )
    parser.add_argument("--kills", type=_positive, default=9, help="number of kills (default 9)")
    parser.add_argument("--store", default="", metavar="URL", help="store the runs on this server")
    parser.add_argument("--keep", action="store_true", help="keep the runs on the server")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON and nothing else")
    parser.add_argument("--fault", choices=["forgetful-shop"], help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give 1 or more")
    return number
