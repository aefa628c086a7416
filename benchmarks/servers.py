"""Peers that bring a server: a fresh one for each store, which is killed when the store is dropped."""

from __future__ import annotations

import os
import random
import shutil
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks import processes, raw
from benchmarks.systems import PEERS

_START_SECONDS = 60.0
_PORTS = range(20_000, 32_000)
"""Below those that the kernel hands out: no connection takes one between our look and its use."""


class ServerPlace:
    """A folder in which a server is started for every store; its limit is that of SQLite on the same disk."""

    name = ""
    title = ""
    ports = 1
    """How many it needs, in a row."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, tuple[ExitStack, Path]] = {}

    def command(self, home: Path, port: int) -> tuple[list[str], Mapping[str, str]]:
        """Return how to start a server that answers on a port, and what its environment has beside ours."""
        raise NotImplementedError

    def fresh(self) -> str:
        """Start a server and wait until it answers. Raises Failed."""
        home, port, stack = self._folder / os.urandom(4).hex(), free_ports(self.ports), ExitStack()
        home.mkdir()
        words, more = self.command(home, port)
        environment = {**os.environ, **more}
        log = home / "server-log"
        process = stack.enter_context(processes.started(words, log=log, environment=environment, folder=home))
        url = f"http://127.0.0.1:{port}"
        self._running[url] = (stack, home)
        deadline = time.monotonic() + _START_SECONDS
        while not self.answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(encoding="utf-8", errors="replace").strip()[-200:]
                self.drop(url)
                raise processes.Failed(f"the server does not start: {said}")
            time.sleep(0.02)
        return url

    def answers(self, port: int) -> bool:
        """Tell whether somebody listens there."""
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def limit(self, count: int) -> float:
        """Measure the disk."""
        return raw.one_row_commits(self._folder, count)

    def size(self, url: str) -> int:
        """Return the bytes of everything in its folder."""
        _, home = self._running[url]
        return sum(path.stat().st_size for path in home.rglob("*") if path.is_file())

    def drop(self, url: str) -> None:
        """Kill the server and remove what it kept."""
        stack, home = self._running.pop(url)
        stack.close()
        shutil.rmtree(home, ignore_errors=True)

    def close(self) -> None:
        """Kill what is left."""
        for url in list(self._running):
            self.drop(url)


def free_ports(count: int) -> int:
    """Return the first of so many ports in a row that nobody has."""
    while True:
        first = random.choice(_PORTS)
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(closing(socket.socket())).bind(("", port))
            except OSError:
                continue
            return first


class RestatePlace(ServerPlace):
    """Restate's server, with its default of synced logs; the port after its ingress is for administration."""

    name = "restate"
    title = "Restate's own server (RocksDB, WAL fsync on, one partition leader here)"
    ports = 4  # three of its own, and that of the service which it calls

    def command(self, home: Path, port: int) -> tuple[list[str], Mapping[str, str]]:
        """Start it with the first three of its ports."""
        server = PEERS / "restate" / "node_modules" / "@restatedev" / "restate-server-linux-x64" / "bin"
        return [
            str(server / "restate-server"), "--no-logo", "--listen-mode", "tcp", "--base-dir", str(home),
            "--bind-port", str(port + 2),
        ], {
            "RESTATE_INGRESS__BIND_PORT": str(port),
            "RESTATE_ADMIN__BIND_PORT": str(port + 1),
            "RESTATE_DEFAULT_RETRY_POLICY__INITIAL_INTERVAL": "50ms",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RUST_LOG": "error",
        }  # fmt: skip

    def answers(self, port: int) -> bool:
        """Tell whether its ingress and its administration listen."""
        return super().answers(port) and super().answers(port + 1)


class TemporalPlace(ServerPlace):
    """Temporal's development server with its state in a file."""

    name = "temporal"
    title = "Temporal's development server (SQLite file, WAL, synchronous=FULL)"

    def command(self, home: Path, port: int) -> tuple[list[str], Mapping[str, str]]:
        """Start it without its user interface."""
        return [
            str(PEERS / "temporal" / "bin" / "temporal"), "server", "start-dev", "--headless", "--ip",
            "127.0.0.1", "--port", str(port), "--db-filename", str(home / "temporal.db"), "--sqlite-pragma",
            "journal_mode=wal", "--sqlite-pragma", "synchronous=full", "--log-level", "error",
        ], {"HOME": str(home)}  # fmt: skip
