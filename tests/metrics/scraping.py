"""`ninelives metrics` as a process, and what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from ninelives.ops.notify.state import ChannelState, NotifyState
from ninelives.stores.sqlite import SqliteStore

Scraped = dict[tuple[str, frozenset[tuple[str, str]]], float]
_READY = re.compile(r"metrics at http://\S+?:(\d+)/metrics")
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PATIENCE_SECONDS = 60.0


class Exporter:
    """`ninelives metrics` on a free port."""

    def __init__(self, url: str, *options: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ninelives", "metrics", "--port", "0", *options],
            env={**os.environ, "NINELIVES_STORE": url},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.port = 0
        self._ready = threading.Event()
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()
        assert self._ready.wait(PATIENCE_SECONDS), self.lines

    def _follow(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as said:
            for line in said:
                self.lines.append(line)
                found = _READY.search(line)
                if found:
                    self.port = int(found[1])
                    self._ready.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill it."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._follower.join()

    def fetch(self, path: str = "/metrics", **headers: str) -> tuple[int, str, str]:
        """Return status, type and text of an answer."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=named)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Content-Type"], error.read().decode()

    def scrape(self, **headers: str) -> Scraped:
        """Return all samples."""
        status, kind, text = self.fetch(**headers)
        assert status == 200, text
        parse = openmetrics if kind.startswith("application/openmetrics-text") else plain
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in parse(text)
            for sample in family.samples
        }


def waiting_notices(store: SqliteStore, seconds: int = 900) -> NotifyState:
    """Return what a notifier reports whose receiver has been away for so long."""
    now_ms = store.now_ms()
    channel = ChannelState(
        sent=3, failed=0, waiting=2, oldest_waiting_ms=now_ms - seconds * 1000, last_sent_ms=0, error="away"
    )
    return NotifyState(at_ms=now_ms, by="h|1|t", channels={"on-call": channel})


def value(scraped: Scraped, name: str, **labels: str) -> float:
    """Return the sum of a metric over all series that have these labels; there must be one."""
    wanted = set(labels.items())
    found = [number for (known, given), number in scraped.items() if known == name and wanted <= given]
    assert found, f"no series of {name} with {labels}"
    return sum(found)


def wait_for(condition: object, what: str, seconds: float = PATIENCE_SECONDS) -> object:
    """Return what a condition gives, once it gives something; fails when it does not for very long."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()  # type: ignore[operator]
        if found:
            return found
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def in_path(directory: Path) -> dict[str, str]:
    """Return an environment in which `ninelives` is this one, at home in a directory."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(directory)}
