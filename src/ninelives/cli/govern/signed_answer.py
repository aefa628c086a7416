"""`ninelives approve` and `deny` with a signature: by ssh-keygen here, or elsewhere from a printed request.

The command only gives the answer: the worker that takes it verifies the signature, by its own file of
approvers. An answer that it refuses is asked again, with the reason. Printing a request changes nothing but
the store's own id, if it has none yet.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from ninelives.cli.commands.inbox import report
from ninelives.cli.options import age_ms, opened
from ninelives.cli.output import emit, say
from ninelives.core.errors import UsageError
from ninelives.core.ids import check_id
from ninelives.core.journal.answers import Answer, Says, check_answer
from ninelives.governance.approvers import signing
from ninelives.governance.approvers.ssh_signature import NAMESPACE
from ninelives.runtime.inbox import find, give, login


class Signing(Struct, frozen=True):
    """How an answer is signed, as the options say it."""

    sign: bool
    key: str | None
    valid: str
    print_request: bool
    signature: str | None
    request: str | None

    def check(self) -> None:
        """Refuse options that exclude each other. Raises UsageError."""
        if self.request is not None and self.signature is None:
            raise UsageError("--request goes with --signature", remedy="Give both, or neither")
        if sum([self.sign or self.key is not None, self.print_request, self.signature is not None]) > 1:
            raise UsageError(
                "--sign, --print-request and --signature are three ways to sign", remedy="Give one of them"
            )


def answer(
    url: str, name: str, says: Says, how: Signing, *, note: str, by: str | None, as_json: bool
) -> None:
    """Give a signed answer to an item, or print the text to sign. Raises UsageError."""
    person = check_id(by, "name in --by") if by is not None else None
    with opened(url) as store:
        item = find(store, check_id(name, "item id"))
        if how.signature is not None:
            signed, author = signing.from_request(store, item, says, *_files(how, note))
            if person not in (None, author):
                raise UsageError(
                    f"the request was signed by {author!r}, not {person!r}", remedy="Leave out --by"
                )
        else:
            author, given = person or login(), Answer(says, note=note)
            check_answer(item, given)
            signed, text = signing.requested(
                store, item, given, author, at_ms=store.now_ms(), valid_ms=_valid_ms(how.valid)
            )
            if how.print_request:
                _print(text)
                return
            signed = signing.sign(signed, text, Path(how.key or signing.DEFAULT_KEY))
        report(store, give(store, item, signed, author), says, as_json=as_json)


def _files(how: Signing, note: str) -> tuple[Path, Path]:
    if note:
        raise UsageError("--note with --signature", remedy="Give it with --print-request: it is signed, too")
    signature = Path(how.signature or "")
    if how.request is None and signature.suffix != ".sig":
        raise UsageError(f"{signature} does not end with .sig", remedy="Name what it signs with --request")
    return Path(how.request) if how.request is not None else signature.with_suffix(""), signature


def _valid_ms(text: str) -> int:
    found = age_ms(text)
    if not found:
        raise UsageError(f"--valid {text}", remedy="Give a time above 0, such as 1d or 2h")
    return found


def _print(text: bytes) -> None:
    emit(text.decode("ascii"))
    say(f"keep it as a file, and sign it: ssh-keygen -Y sign -n {NAMESPACE} -f ~/.ssh/id_ed25519 FILE")
    say("then give it with: --signature FILE.sig")
