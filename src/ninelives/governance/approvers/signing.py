"""Sign an answer as a person, by ssh-keygen: from a key file, an agent, or a security key that it knows.

Private keys are ssh-keygen's business: it asks for passphrases and talks to the agent. Or the text is signed
elsewhere, on a machine without a network, and brought back (`requested`, `from_request`). Nothing here is
trusted by a worker: it makes the text again and verifies the signature itself.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from msgspec.structs import replace

from ninelives.core.errors import UsageError
from ninelives.core.journal.answers import Answer, Says, Signed
from ninelives.core.model.inbox import Item
from ninelives.governance.approvers.ssh_signature import (
    NAMESPACE,
    BadSignature,
    unarmoured,
)
from ninelives.governance.approvers.statement import moment_ms, statement
from ninelives.store import DocumentStore
from ninelives.stores.store_id import store_id

DEFAULT_KEY = "~/.ssh/id_ed25519"


def requested(
    store: DocumentStore, item: Item, answer: Answer, by: str, *, at_ms: int, valid_ms: int
) -> tuple[Answer, bytes]:
    """Return the answer with the times that its signature names, and the text to sign. Raises Corrupt."""
    signed = Signed(at_ms, at_ms + valid_ms)
    return replace(answer, signed=signed), statement(store_id(store), item, answer, by, signed)


def sign(answer: Answer, text: bytes, key: Path) -> Answer:
    """Return the answer with the signature of that text by ssh-keygen. Raises UsageError."""
    if answer.signed is None:
        raise UsageError("an answer without times cannot be signed", remedy="Request it first")
    command = ["ssh-keygen", "-Y", "sign", "-q", "-n", NAMESPACE, "-f", str(key.expanduser())]
    try:
        # Its prompts (a passphrase, a touch of the key) go to the terminal by themselves.
        ran = subprocess.run(command, input=text, capture_output=True, check=False)  # noqa: S603
    except FileNotFoundError:
        raise UsageError(
            "there is no ssh-keygen here",
            remedy="Install it (apt install openssh-client), or sign elsewhere: --print-request, --signature",
        ) from None
    if ran.returncode:
        said = ran.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(
            f"ssh-keygen could not sign with {key}: {said[-1] if said else 'it says nothing'}",
            remedy="Name another key with --key; a .pub file takes the key from the agent",
        )
    return _with(answer, answer.signed, ran.stdout.decode(errors="replace"), str(key))


def from_request(
    store: DocumentStore, item: Item, says: Says, request: Path, signature: Path
) -> tuple[Answer, str]:
    """Return the answer that was signed elsewhere, and its person. Raises UsageError when it is another's."""
    text = _read(request)
    try:
        found = json.loads(text)
        signed = Signed(moment_ms(found["at"]), moment_ms(found["until"]))
        answer, by = Answer(Says(found["answer"]), note=str(found["note"])), str(found["by"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise UsageError(
            f"{request} is no request: {type(error).__name__}: {error}",
            remedy="Write it with --print-request",
        ) from None
    if answer.says is not says:
        raise UsageError(f"{request} says {answer.says}, not {says}", remedy="Give the other command")
    if statement(store_id(store), item, answer, by, signed) != text:
        raise UsageError(
            f"{request} is not the request for inbox item {item.id!r} as it is now",
            run=item.run,
            step=item.step or None,
            remedy="It is for another item or store, or was changed: print it again, and sign that",
        )
    return _with(answer, signed, _read(signature).decode(errors="replace"), str(signature)), by


def _with(answer: Answer, signed: Signed, text: str, where: str) -> Answer:
    try:
        return replace(answer, signed=replace(signed, signature=unarmoured(text)))
    except BadSignature as error:
        raise UsageError(
            f"the signature of {where} cannot be used: {error}",
            remedy=f"Sign with an ssh-ed25519 key: ssh-keygen -Y sign -n {NAMESPACE} -f KEY REQUEST",
        ) from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", remedy="Name the file") from None
