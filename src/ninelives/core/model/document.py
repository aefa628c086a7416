"""Documents: small durable facts of operators, such as how far an audit got or which notices were sent."""

from __future__ import annotations

from msgspec import Struct

DOCUMENT_BYTES = 64 * 1024
"""The largest body of a document."""
HALTS = "halts"
"""The document that says what is halted. Its writes wake all that wait for work."""
UNREADABLE = -1
"""In place of the version of a document that is damaged."""
ENCRYPTION = "store/encryption"
"""The document that says that a store is encrypted, and by which key it was last written."""
STORE_ID = "store/id"
"""The document with the id by which moves and exports know a store. A copy of the store gets another one."""


class Document(Struct, frozen=True, kw_only=True):
    """A document: its name (`audit/cursor`), its body (JSON), and its version, raised by each write."""

    name: str
    version: int
    body: bytes
    changed_ms: int
