"""Parse the options of `ninelives demo`, run its two stages, and print the report."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from rich.console import Console

from ninelives.core.errors import NineLivesError
from ninelives.demo import model
from ninelives.demo.director import DemoFailed, Director, Watcher
from ninelives.demo.judge import DemoReport, judge
from ninelives.demo.moments import plan
from ninelives.demo.screen import Lively, Plain, Quiet, conclude
from ninelives.demo.store_urls import on_server, remove
from ninelives.demo.tickets import tickets
from ninelives.stores.open import open_store
from ninelives.stores.url import part_in

LIMIT_SECONDS, LIMIT_SECONDS_REAL = 40.0, 600.0
EXIT_MISSED, EXIT_INTERRUPTED = 1, 130


def run(argv: Sequence[str] | None) -> int:
    """Run both stages and print the numbers; the exit code is 0 if all targets are met."""
    given = _options(argv)
    console = Console(stderr=given.json)
    since = time.monotonic()
    try:
        with ending_in_order(), tempfile.TemporaryDirectory(prefix="ninelives-demo-") as home:
            verdict = asyncio.run(_stages(Path(home), given, console))
    except (DemoFailed, NineLivesError) as error:
        console.print(f"the demo failed: {error}", markup=False, soft_wrap=True)
        return EXIT_MISSED
    except KeyboardInterrupt:
        console.print("interrupted; all processes have been ended and nothing is left behind")
        return EXIT_INTERRUPTED
    seconds = time.monotonic() - since
    if given.json:
        sys.stdout.write(msgspec.json.encode(_fields(verdict, seconds)).decode() + "\n")
    else:
        conclude(console, verdict, seconds)
    return 0 if verdict.is_met else EXIT_MISSED


async def _stages(home: Path, given: argparse.Namespace, console: Console) -> DemoReport:
    is_scripted = model.provider() == "scripted"
    if given.json:
        return await _both(home, given, Watcher(), is_scripted=is_scripted)
    kind = "a scripted model" if is_scripted else f"a model of {model.provider()}"
    console.print(
        f"A support agent with {kind} works on {given.tickets} tickets: first without crashes, then with "
        f"its worker killed up to {given.kills} times (seed {given.seed}).",
        highlight=False,
        soft_wrap=True,
    )
    with Lively(console) if console.is_terminal else Plain(console) as watcher:
        return await _both(home, given, watcher, is_scripted=is_scripted)


async def _both(home: Path, given: argparse.Namespace, watcher: Watcher, *, is_scripted: bool) -> DemoReport:
    """Run the stage without crashes, then the one with crashes; each has its own store and shop."""
    for name in ("calm", "crashed"):
        (home / name).mkdir()
    urls = on_server(given.store) if given.store else {"calm": "", "crashed": ""}
    try:
        return await _run_stages(home, given, watcher, urls, is_scripted=is_scripted)
    finally:
        if given.store and not given.keep:
            _clear(urls, watcher)


async def _run_stages(
    home: Path, given: argparse.Namespace, watcher: Watcher, urls: dict[str, str], *, is_scripted: bool
) -> DemoReport:
    limit = LIMIT_SECONDS if is_scripted else LIMIT_SECONDS_REAL
    work = tickets(given.tickets)
    calm = await Director(home / "calm", work, [], Quiet(watcher), urls["calm"]).direct(limit_seconds=limit)
    if len(calm.results) < len(work):
        why = "; ".join(calm.failures.values()) or f"not done within {limit:.0f} s"
        raise DemoFailed(
            f"only {len(calm.results)} of {len(work)} tickets completed even without crashes: {why}"
        )
    watcher.say(f"without crashes: {len(work)} of {len(work)} tickets completed; now with kill -9")
    strikes = plan(given.kills, Random(given.seed))
    crashed = await Director(home / "crashed", work, strikes, watcher, urls["crashed"]).direct(
        limit_seconds=limit, is_forgetful=given.fault == "forgetful-shop"
    )
    if given.store and given.keep:
        watcher.say(f"the runs are kept on the server; list them with: {_list_command(urls['crashed'])}")
    return judge(calm, crashed, is_scripted=is_scripted)


def _clear(urls: dict[str, str], watcher: Watcher) -> None:
    try:
        remove(urls)
    except NineLivesError as error:
        names = " and ".join(str(part_in(url)) for url in urls.values())
        watcher.say(f"could not remove {names} from the server: {error}")


def _list_command(url: str) -> str:
    """Return the command that lists the runs of a stage, without the password."""
    store = open_store(url)
    try:
        return shlex.join(["ninelives", "ps", "--all", "--store", store.url])
    finally:
        store.close()


def _fields(verdict: DemoReport, seconds: float) -> dict[str, Any]:
    return {"is_met": verdict.is_met, "seconds": round(seconds, 3), **msgspec.to_builtins(verdict)}


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that all processes are ended and all files removed."""
    before = {signum: signal.signal(signum, _interrupt) for signum in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _interrupt(*_: object) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job of a shell
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


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
