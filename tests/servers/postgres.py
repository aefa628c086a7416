"""A private PostgreSQL server for tests: its own directory, a free port, real syncs, killed with us.

`NINELIVES_TEST_POSTGRES` names another server (a URL without a schema; its user may create schemas).
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import psycopg

from tests.servers.fetch import unpacked
from tests.servers.server_process import ServerProcess, die_with_parent

_START_SECONDS = 60
_NOBODY = 65534
_ROOM_BYTES = 1 << 30


class PostgresServer(ServerProcess):
    """One server, which may be killed and started again on the same data."""

    def __init__(self, directory: Path | None = None, *, listen: str = "127.0.0.1") -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ninelives-pg-", dir=directory))
        self._user = _NOBODY if os.geteuid() == 0 else None
        self._programs = _programs(self.root, is_private=self._user is None)
        if self._user is not None:  # PostgreSQL refuses to run as root
            os.chown(self.root, self._user, self._user)
        self._data = self.root / "data"
        self._log = self.root / "log"
        flags = ["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]
        self._spawn("initdb", "-D", str(self._data), *flags).wait(_START_SECONDS)
        with (self._data / "pg_hba.conf").open("a") as allowed:
            allowed.write("host all all 10.77.0.0/16 trust\n")  # the hosts of `tests.servers.hosts`
        self.port, self._listen = free_port(), listen
        self.start()

    @property
    def url(self) -> str:
        """Return the URL of its database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = {
            "listen_addresses": self._listen,
            "port": str(self.port),
            "unix_socket_directories": str(self.root),
            "shared_buffers": "32MB",
            "dynamic_shared_memory_type": "mmap",  # in its directory: nothing is left of a killed server
            "max_connections": "200",
            "autovacuum_naptime": "10s",
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = self._spawn("postgres", "-D", str(self._data), *flags)
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    said = self._log.read_text(encoding="utf-8")[-2000:]
                    raise RuntimeError(f"PostgreSQL does not start: {said}") from error
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """Kill the whole server with SIGKILL; what was not synced by it is in the kernel's hands only."""
        assert self._process is not None
        children = _children(self._process.pid)
        self._process.kill()
        self._process.wait()
        for pid in children:  # they would notice, and be in the way of the next start until then
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        while any(Path(f"/proc/{pid}").exists() for pid in children):
            time.sleep(0.01)

    def _spawn(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [self._programs / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.root,
                env={"PATH": os.environ.get("PATH", ""), "LANG": "C", "TZ": "UTC"},
                user=self._user,
                group=self._user,
                extra_groups=[] if self._user is not None else None,
                preexec_fn=die_with_parent,  # noqa: PLW1509 (it makes one system call)
            )


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _programs(root: Path, *, is_private: bool) -> Path:
    """Return the directory of the server's programs, where an unprivileged user can reach it."""
    package = find_spec("pgserver")  # only its programs: nothing of it is imported
    if package is not None and package.origin is not None:
        found = Path(package.origin).parent / "pginstall"
    else:
        try:
            found = unpacked("pgserver==0.1.4", python="3.12") / "pgserver" / "pginstall"
        except RuntimeError as error:
            raise RuntimeError(
                "these tests need a PostgreSQL server: pip install -e '.[dev]' brings one up to Python 3.12,"
                f" or set NINELIVES_TEST_POSTGRES=postgresql://user@host/database ({error})"
            ) from error
    if is_private or all(folder.stat().st_mode & 0o005 == 0o005 for folder in (found, *found.parents)):
        return found / "bin"
    shutil.copytree(found, root / "pginstall")
    root.chmod(0o755)
    return root / "pginstall" / "bin"


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def quick_directory() -> Path | None:
    """Return a directory in memory where there is one with room: most tests are not about disks."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shutil.disk_usage(shared).free < _ROOM_BYTES:
        return None
    return shared


@cache
def shared_url() -> str:
    """Return the URL of the server that the tests of this process share; it is started once."""
    given = os.environ.get("NINELIVES_TEST_POSTGRES")
    if given:
        return given
    server = PostgresServer(quick_directory())
    atexit.register(server.remove)
    return server.url


def change(text: str, values: tuple[object, ...] = ()) -> int:
    """Change something on the shared server behind the stores' backs; returns how many rows."""
    return _behind().execute(text.encode(), values or None).rowcount


@cache
def _behind() -> psycopg.Connection[tuple[object, ...]]:
    connection = psycopg.connect(shared_url(), autocommit=True)
    atexit.register(connection.close)
    return connection
