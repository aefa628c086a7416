"""Parse the options of `ninelives demo`, play its two stages on chaos, and print the report."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import msgspec
from msgspec import structs
from rich.console import Console

from ninelives.chaos.campaign.campaign import failure, why_unended
from ninelives.chaos.findings.effects import declarations
from ninelives.chaos.protocol import LifeSettings
from ninelives.chaos.report.command import ending_in_order
from ninelives.chaos.trial.fork_server import ForkServers
from ninelives.chaos.trial.scenarios import Scenario
from ninelives.chaos.trial.scratch_store import SQLITE, remove, urls
from ninelives.chaos.trial.trial import ChaosFailed, Ground, TrialStage
from ninelives.chaos.trial.work_tree import Tree
from ninelives.core.errors import NineLivesError
from ninelives.core.model.run import Record
from ninelives.demo import model
from ninelives.demo.board import TicketBoard, Watcher
from ninelives.demo.judge import DemoReport, DemoStage, judge
from ninelives.demo.kills import EFFECTS, Strikes, plan
from ninelives.demo.screen import Quiet, Screen, conclude
from ninelives.demo.shop import Shop, serving
from ninelives.demo.tickets import tickets
from ninelives.engine.commit import large_bodies
from ninelives.store import Store
from ninelives.stores.open import open_store
from ninelives.stores.url import backend_of, part_in

LIMIT_SECONDS, LIMIT_SECONDS_REAL = 40.0, 600.0
EXIT_MISSED, EXIT_INTERRUPTED = 1, 130


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
        fields = {"is_met": report.is_met, "seconds": round(seconds, 3), **msgspec.to_builtins(report)}
        sys.stdout.write(msgspec.json.encode(fields).decode() + "\n")
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
    with Screen(console) as screen:
        return _both(home, given, screen)


def _both(home: Path, given: argparse.Namespace, watcher: Watcher) -> DemoReport:
    """Play both stages on stores of their own, which are removed at the end."""
    name = urls(given.store or SQLITE, "demo")
    stores = [name(number, home / f"trial-{number}") for number in (0, 1)]
    try:
        with ForkServers(backend_of(stores[0])) as fork_servers:
            report = _compared(home, given, watcher, fork_servers, stores)
        if given.store and given.keep:
            with closing(open_store(stores[1])) as store:
                listing = shlex.join(["ninelives", "ps", "--all", "--store", store.url])
            watcher.say(f"the runs are kept on the server; list them with: {listing}")
        return report
    finally:
        if given.store and not given.keep:
            clear(stores, watcher)


def _compared(
    home: Path, given: argparse.Namespace, watcher: Watcher, fork_servers: ForkServers, stores: Sequence[str]
) -> DemoReport:
    """Play the stage without crashes, then the one with crashes, and compare them."""
    (home / "tree").mkdir()
    ground = Ground(
        fork_servers=fork_servers,
        home=home,
        tree=Tree(home / "tree"),
        settings=LifeSettings(target="ninelives.demo.agent:desk", words=(str(given.tickets),)),
        url=lambda number, _: stores[number],
        limit_seconds=LIMIT_SECONDS if model.is_scripted() else LIMIT_SECONDS_REAL,
    )
    calm = _play(ground, 0, Scenario("without crashes"), Quiet(watcher), Shop())
    if len(calm.board.results) < given.tickets:
        why = failure(calm.trial) if calm.trial.error else why_unended(calm.trial)
        done = f"{len(calm.board.results)} of {given.tickets}"
        raise ChaosFailed(f"only {done} tickets completed even without crashes: {why}")
    watcher.say(f"without crashes: {given.tickets} of {given.tickets} tickets completed; now with kill -9")
    acting = [step for step, one in declarations(calm.trial).items() if one.name in EFFECTS]
    strikes = Strikes(plan(given.kills, Random(given.seed)), acting)
    shop = Shop(is_forgetful=given.fault == "forgetful-shop")
    crashed = _play(ground, 1, strikes, watcher, shop)
    if crashed.trial.why:
        watcher.say(f"not all tickets were done: {why_unended(crashed.trial)}")
    elif left := strikes.left(crashed.trial.lines):
        watcher.say(f"all tickets were done; {len(left)} of the kills were not needed")
    return judge(calm, crashed, is_scripted=model.is_scripted())


def _play(ground: Ground, number: int, scenario: Scenario, watcher: Watcher, shop: Shop) -> DemoStage:
    """Play one stage until all tickets end or time is up; a ticket that has not ended then is lost.

    A stage is one trial of chaos: a run of `agent.desk`, with one child run for each ticket.
    """
    bill, half = ground.home / f"bill-{number}", ground.limit_seconds / 2
    with serving(shop) as address, closing(open_store(ground.url(number, ground.home))) as store:
        board = TicketBoard(
            tickets(int(ground.settings.words[0])), watcher, lambda runs: _journals(store, runs)
        )
        environment = {"NINELIVES_DEMO_SHOP": address, "NINELIVES_DEMO_BILL": str(bill)}
        settings = structs.replace(ground.settings, environment=environment)
        ground = structs.replace(ground, settings=settings)
        trial = TrialStage(ground, scenario, number, {}, board.follow).play(half, half)
        board.close()
    lines = [json.loads(line) for line in bill.read_text().splitlines()] if bill.exists() else []
    return DemoStage(trial, board, shop.ledger, lines)


def _journals(store: Store, runs: Iterable[str]) -> dict[str, list[Record]]:
    there = [run for run in runs if store.read_run(run) is not None]
    return {run: list(large_bodies.whole(store, store.load_journal(run, since=0).records)) for run in there}


def clear(stores: Sequence[str], watcher: Watcher) -> None:
    """Remove the stages' stores from the server; say so if it refuses."""
    try:
        for url in stores:
            remove(url)
    except NineLivesError as error:
        parts = " and ".join(str(part_in(url)) for url in stores)
        watcher.say(f"could not remove {parts} from the server: {error}")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="ninelives demo",
        description="Kill a support agent's worker again and again, and measure how its runs recover.",
    )
    parser.add_argument("--seed", type=int, default=9, help="seed that chooses when to kill (default 9)")
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
