"""An anchor in a git repository: each tree head is a file and a commit; pushing is left to the repository.

If we die here: a file that is not committed, which the next attempt writes and commits.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from msgspec import Struct

from ninelives.core.errors import StoreUnavailable, UsageError

_SECONDS = 60


class GitObject(Struct, frozen=True):
    """A file of the last commit."""

    content: bytes


class GitAnchor:
    """Objects as files of a repository's last commit."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self.url = f"git:{self._directory}"
        if not self._directory.is_dir() or self._git("rev-parse", "--git-dir") is None:
            raise UsageError(f"{directory!r} is no git repository", remedy=f"git init {directory}")

    def names(self, prefix: str, after: str = "") -> list[str]:
        """Return the names of all files under a prefix that come after a name, in order."""
        if self._git("rev-parse", "--verify", "-q", "HEAD") is None:
            return []  # no commit yet
        listed = self._done("ls-tree", "-r", "-z", "--name-only", "HEAD", "--", prefix.rstrip("/"))
        found = sorted(name for name in listed.decode().split("\0") if name)
        return [name for name in found if name.startswith(prefix) and name > after]

    def read(self, name: str) -> GitObject | None:
        """Return a file of the last commit, or None."""
        found = self._git("cat-file", "blob", f"HEAD:{name}")
        return GitObject(found) if found is not None else None

    def create(self, name: str, content: bytes) -> None:
        """Write a file and commit it. Raises StoreUnavailable."""
        path = self._directory / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError as error:
            raise StoreUnavailable(f"{self.url} cannot be written: {error.strerror}") from error
        self._done("add", "-f", "--", name)
        # CRASH: a file that is not committed: it is not listed, and the next attempt commits it.
        self._done("commit", "-q", "-m", f"Anchor {name}", "--", name)

    def _done(self, *words: str) -> bytes:
        found = self._run(*words)
        if found.returncode:
            said = found.stderr.decode(errors="replace").strip()
            raise StoreUnavailable(
                f"git {words[0]} in {self._directory} failed: {said}",
                remedy="Check that git can commit there: it needs user.name, user.email and space",
            )
        return found.stdout

    def _git(self, *words: str) -> bytes | None:
        found = self._run(*words)
        return None if found.returncode else found.stdout

    def _run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(  # noqa: S603 (no shell, and names that we made)
                ["git", "-C", str(self._directory), *words],  # noqa: S607 (the user's git)
                capture_output=True,
                timeout=_SECONDS,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except FileNotFoundError as error:
            raise UsageError("an anchor in a git repository needs git", remedy="Install git") from error
        except subprocess.TimeoutExpired as error:
            raise StoreUnavailable(f"git {words[0]} in {self._directory} took too long") from error
