"""Which policy each worker enforces, so that one that was started without it, or with another, is found.

Each worker with a policy keeps a document `governed/SESSION` before its session begins. A live worker without
one has no policy. Documents of sessions that have ended are removed by the next worker that keeps one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

import msgspec
from msgspec import Struct

from ninelives.core.errors import StaleDocument
from ninelives.core.model.document import Document
from ninelives.core.model.session import Fate, Session
from ninelives.governance.parts import GovernedStore

PREFIX = "governed/"


class Enforced(Struct, frozen=True):
    """The policy that a worker enforces; empty: none."""

    digest: str = ""
    name: str = ""


class EnforcedGroup(Struct, frozen=True, kw_only=True):
    """The live workers that enforce one policy, or none. `example` is the first, from `since_ms` on."""

    policy: Enforced
    workers: int
    agents: frozenset[str]
    example: str
    since_ms: int


def note_enforced(store: GovernedStore, session: str, policy: Enforced) -> None:
    """Keep which policy the worker of a session enforces. Raises StoreError.

    If we die here: a document without a session, which the next worker removes.
    """
    known = {one.id for one in store.list_sessions()}
    for document in _documents(store):
        name = document.name.removeprefix(PREFIX)
        if name not in known and name != session:
            with suppress(StaleDocument):  # another worker has removed it
                store.write_document(document.name, None, version=document.version)
    with suppress(StaleDocument):  # it is there: the session's name was used before
        store.write_document(f"{PREFIX}{session}", msgspec.json.encode(policy), version=0)


def _documents(store: GovernedStore) -> Iterable[Document]:
    after = ""
    while page := store.read_documents(PREFIX, after=after):
        yield from page
        after = page[-1].name


def enforced_by(store: GovernedStore, sessions: Iterable[Session]) -> list[EnforcedGroup]:
    """Return the live workers by their policy; nothing if none of them has one."""
    return grouped(_documents(store), sessions)


def grouped(documents: Iterable[Document], sessions: Iterable[Session]) -> list[EnforcedGroup]:
    """Return what `enforced_by` does, of documents that were read."""
    known = {one.name.removeprefix(PREFIX): _decoded(one) for one in documents}
    groups: defaultdict[Enforced, list[Session]] = defaultdict(list)
    for session in sessions:
        if session.fate is Fate.LIVES and session.agents:  # supervisors have no agents
            groups[known.get(session.id, Enforced())].append(session)
    if not any(policy.digest for policy in groups):
        return []
    return [
        EnforcedGroup(
            policy=policy,
            workers=len(same),
            agents=frozenset(agent for one in same for agent in one.agents),
            example=min(same, key=lambda one: one.started_ms).id,
            since_ms=min(one.started_ms for one in same),
        )
        for policy, same in sorted(groups.items(), key=lambda group: (group[0].name, group[0].digest))
    ]


def differing(groups: Iterable[EnforcedGroup]) -> dict[str, list[EnforcedGroup]]:
    """Return, by agent, the groups of workers that serve it, if they enforce different policies."""
    found: defaultdict[str, list[EnforcedGroup]] = defaultdict(list)
    for group in groups:
        for agent in group.agents:
            found[agent].append(group)
    return {agent: same for agent, same in sorted(found.items()) if len(same) > 1}


def _decoded(document: Document) -> Enforced:
    try:
        return msgspec.json.decode(document.body, type=Enforced)
    except msgspec.DecodeError:
        return Enforced()
