"""Documents: compare-and-set by version, and what commits require of them, reserve and spend in them.

The same for all stores.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

import msgspec

from ninelives.core.errors import BadName, BadRecord, Corrupt, NotSerializable, StaleDocument, UsageError
from ninelives.core.governance import accounts
from ninelives.core.governance.accounts import Over
from ninelives.core.ids import check_id
from ninelives.core.model.commit import Commit, Outcome, Verdict
from ninelives.core.model.document import DOCUMENT_BYTES, Document

_LAST = "\U0010ffff"  # not printable, so no name has it: it sorts behind every name with a prefix


def fault_in_write(name: str, body: bytes | None, version: int) -> UsageError | None:
    """Return what is wrong with the write of a document; None if nothing is."""
    try:
        if check_id(name, "document's name") != name:
            return BadName(
                f"the document's name {name!a} is not in Unicode's form NFC", remedy="Normalise it"
            )
    except BadName as error:
        return error
    if version < 0:
        return UsageError(f"document {name!r}: version {version} is negative", remedy="0 means: it is new")
    if body is None:
        return None
    if len(body) > DOCUMENT_BYTES:
        return NotSerializable(
            f"document {name!r} has {len(body)} bytes; the limit is {DOCUMENT_BYTES}",
            remedy="Split it into several documents",
        )
    try:
        msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        return NotSerializable(f"the body of document {name!r} is not JSON: {error}")
    return None


def bounds(prefix: str, after: str) -> tuple[str, str, str]:
    """Return between which names those with a prefix are: greater than, at least, less than."""
    return after, prefix, prefix + _LAST


def written(
    known: Document | None, name: str, body: bytes | None, version: int, now_ms: int
) -> Document | None:
    """Return the document after a write; None after a removal. Raises StaleDocument.

    A write that finds what it would have left counts as done: its first answer may have been lost.
    """
    found = known.version if known is not None else 0
    if body is None:
        if known is not None and found != version:
            raise stale(name, version, found)
        return None
    if known is not None and found == version + 1 and known.body == body:
        return known
    if found != version:
        raise stale(name, version, found)
    return Document(name=name, version=version + 1, body=body, changed_ms=now_ms)


def stale(name: str, version: int, found: int) -> StaleDocument:
    """Return the error for a document that another process has changed."""
    now = f"is at version {found}" if found else "does not exist"
    was = f"version {version} was expected" if version else "it was expected not to exist"
    return StaleDocument(f"document {name!r} {now}; {was}", remedy="Read it again, and decide again")


# Commits -------------------------------------------------------------------------------------------


def unmet(documents: Mapping[str, Document], commit: Commit) -> Verdict | None:
    """Return the verdict on a commit that requires another version of a document; None if all are met."""
    for one in commit.requires:
        known = documents.get(one.name)
        if (known.version if known is not None else 0) != one.version:
            return Verdict(commit.run, Outcome.CHANGED)
    return None


def charge(documents: MutableMapping[str, Document], commit: Commit, now_ms: int) -> Verdict | None:
    """Apply a commit's account operations, in order; return the verdict that refuses it, or None.

    A refused commit may leave a part of itself in the documents: they are a draft.
    """
    for op in commit.accounts:
        known = documents.get(op.account)
        try:
            body = accounts.applied(known.body if known is not None else None, op)
        except Corrupt as damage:  # of this account alone: the other commits of the batch are applied
            return Verdict(commit.run, Outcome.REFUSED, damage)
        if isinstance(body, Over):
            return Verdict(commit.run, Outcome.OVER, account=body)
        if len(body) > DOCUMENT_BYTES:
            fault = BadRecord(
                f"the account {op.account!r} has too many meters",
                run=commit.run,
                remedy="Use another account for some of them",
            )
            return Verdict(commit.run, Outcome.REFUSED, fault)
        if known is None or body != known.body:
            version = known.version + 1 if known is not None else 1
            documents[op.account] = Document(name=op.account, version=version, body=body, changed_ms=now_ms)
    return None
