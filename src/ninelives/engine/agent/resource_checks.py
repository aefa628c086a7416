"""Examine resources: whether they exist, and the evidence that distinguishes a changed one.

The calls block: a run that returns makes them in a thread, `nl.hold` where it is called. Each ends within
some seconds, whatever the target is. A FIFO, a device or a directory is never read, and requests to a dead
server time out.
"""

from __future__ import annotations

import os
import re
import stat
import time
from hashlib import blake2b
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ninelives.core.errors import UsageError
from ninelives.core.journal.resources import Target

WHOLE_BYTES: Final = 16 * 1024 * 1024
"""Of larger files only the first and last MiB are read, and the modification time is compared too."""
SECONDS: Final = 10.0
URL_ATTEMPTS: Final = 3
_END_BYTES: Final = 1024 * 1024
_BAD_BRANCH: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^/|/$|\.$|\.lock$|^-|^$|/\.|^\.")


class Gone(Exception):
    """The resource does not exist, is of another kind, or cannot be examined."""


def check(target: Target) -> None:
    """Check that a target can be held at all, without touching it. Raises UsageError."""
    if target.kind == "branch" and _BAD_BRANCH.search(target.name):
        raise UsageError(f"{target.name!r} is no name of a branch", remedy="Give the short name: 'feature/x'")
    if target.kind == "url":
        parts = urlsplit(target.at)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{target.at!r} is no http address", remedy="Give a whole http(s) URL")
    if target.kind in ("file", "branch") and "\0" in target.at:
        raise UsageError("a path with a NUL in it", remedy="Correct the path")


def examine(target: Target) -> dict[str, str]:
    """Return the evidence of a target's state: equal as long as it is unchanged. Raises Gone."""
    if target.kind == "file":
        return _file(target.at)
    if target.kind == "branch":
        return _branch(target.at, target.name)
    if target.kind == "url":
        return _url(target.at)
    return {}


def _file(path: str) -> dict[str, str]:
    try:
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode):
            raise Gone(f"it is a {_kind(found.st_mode)}, not a file")
        # It may have become a FIFO since the stat: opening it must not block us.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Gone(f"it cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise Gone(f"it is a {_kind(found.st_mode)}, not a file")
        digest = blake2b(digest_size=16)
        if found.st_size <= WHOLE_BYTES:
            while chunk := file.read(_END_BYTES):
                digest.update(chunk)
            return {"size": str(found.st_size), "content": digest.hexdigest()}
        digest.update(file.read(_END_BYTES))
        file.seek(-_END_BYTES, os.SEEK_END)
        digest.update(file.read(_END_BYTES))
    changed = str(found.st_mtime_ns)
    return {"size": str(found.st_size), "content": digest.hexdigest(), "time of change": changed}


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "directory", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}
    return kinds.get(stat.S_IFMT(mode), "device")


def _branch(repo: str, name: str) -> dict[str, str]:
    import subprocess

    if not Path(repo).is_dir():
        raise Gone(f"there is no directory {repo}")
    command = ["git", "-C", repo, "rev-parse", "--verify", "--quiet", f"refs/heads/{name}"]
    try:
        found = subprocess.run(  # noqa: S603 (no shell, and the branch's name was checked)
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"},
        )
    except FileNotFoundError:
        raise Gone("git is not installed here") from None
    except subprocess.TimeoutExpired:
        raise Gone(f"git gave no answer within {SECONDS:g} s") from None
    if found.returncode == 0:
        return {"commit": found.stdout.decode(errors="replace").strip()}
    if found.returncode == 1:
        raise Gone("there is no such branch any more")
    said = found.stderr.decode(errors="replace").strip().splitlines()
    raise Gone(said[0] if said else f"git ended with {found.returncode}")


def _url(url: str) -> dict[str, str]:
    import urllib.error
    import urllib.request

    reason = ""
    for attempt in range(URL_ATTEMPTS):
        if attempt:
            time.sleep(0.2 * attempt)
        for method in ("HEAD", "GET"):
            request = urllib.request.Request(url, method=method)  # noqa: S310 (only http was let in)
            try:
                with urllib.request.urlopen(request, timeout=SECONDS):  # noqa: S310
                    return {}
            except urllib.error.HTTPError as error:
                error.close()
                reason = f"it answers {error.code}"
                if error.code in (404, 410):
                    raise Gone(reason) from None
                if error.code not in (405, 501):
                    break
            except (OSError, ValueError) as error:
                reason = f"it cannot be reached: {getattr(error, 'reason', error)}"
                break
    raise Gone(reason)
