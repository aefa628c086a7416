"""People with SSH keys, made and used by the real ssh-keygen, and what they sign."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from ninelives.governance.approvers.ssh_signature import NAMESPACE, unarmoured
from tests.servers.fetch import debian


@cache
def ssh_keygen() -> str:
    """Return the program: this machine's, or the Debian package's. Raises RuntimeError with a remedy."""
    found = shutil.which("ssh-keygen")
    if found is not None:
        return found
    try:
        return str(debian("openssh-client") / "usr/bin/ssh-keygen")
    except RuntimeError as error:
        raise RuntimeError(
            f"these tests need ssh-keygen: apt-get install openssh-client ({error})"
        ) from error


class SshKey:
    """A key pair of a person."""

    def __init__(self, home: Path, name: str, kind: str = "ed25519") -> None:
        self.file = home / f"{name}-{len(list(home.iterdir()))}"
        _run(["-q", "-t", kind, "-N", "", "-C", name, "-f", str(self.file)])
        self.public = self.file.with_suffix(".pub").read_text().strip()

    def sign(self, text: bytes, namespace: str = NAMESPACE, *options: str) -> str:
        """Return a signature, in base64 on one line."""
        return unarmoured(self.armoured(text, namespace, *options))

    def armoured(self, text: bytes, namespace: str = NAMESPACE, *options: str) -> str:
        """Return a signature as ssh-keygen prints it."""
        return _run(["-Y", "sign", "-q", "-n", namespace, *options, "-f", str(self.file)], text).decode()


def accepts(home: Path, key: str, signature: str, text: bytes) -> bool:
    """Return whether ssh-keygen itself verifies an armoured signature of a text."""
    (home / "allowed").write_text(f"ada {key}\n")
    (home / "signature").write_text(signature)
    verify = ["-Y", "verify", "-n", NAMESPACE, "-f", str(home / "allowed"), "-I", "ada"]
    command = [ssh_keygen(), *verify, "-s", str(home / "signature")]
    return subprocess.run(command, input=text, capture_output=True, check=False).returncode == 0


def _run(arguments: list[str], text: bytes = b"") -> bytes:
    environment = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
    command = [ssh_keygen(), *arguments]
    return subprocess.run(command, input=text, capture_output=True, check=True, env=environment).stdout
