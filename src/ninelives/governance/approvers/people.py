"""The file of approvers: TOML that lists people, their roles, and the SSH keys that they have.

    [[person]]
    name = "ada"
    roles = ["ops", "finance"]
    keys = ["ssh-ed25519 AAAAC3Nza... ada@laptop"]      # as in ~/.ssh/id_ed25519.pub
    until = 2027-01-01T00:00:00Z                        # `from` and `until` are optional

A key may be a table: `{ key = "ssh-ed25519 ...", from = ..., until = ..., revoked = 2026-05-01T12:00:00Z }`;
a person may have `revoked`, too. What is unknown, twice there, or of another type is an error at the load.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct

from ninelives.config_files import FieldReader, read_toml
from ninelives.core.durations import duration_ms
from ninelives.core.errors import UsageError
from ninelives.core.ids import check_id
from ninelives.governance.approvers.ssh_signature import BadSignature, read_key

ROLE = "role:"
"""What `to=` begins with when it names a role, not a person."""
_ALWAYS_MS, _NEVER_MS = 0, 2**62
_DAY_MS = 86_400_000
_REMEDY = "See docs/approvals.md"


class Validity(Struct, frozen=True):
    """From when until when something counts, and since when it is revoked; in milliseconds."""

    from_ms: int = _ALWAYS_MS
    until_ms: int = _NEVER_MS
    revoked_ms: int = _NEVER_MS

    def fault(self, what: str, signed_ms: int, now_ms: int) -> str | None:
        """Return why what was signed then does not count now; None if it counts."""
        if now_ms >= self.revoked_ms:
            return f"{what} is revoked"
        if signed_ms < self.from_ms:
            return f"{what} was not valid yet when it was signed"
        return f"{what} is no longer valid" if max(signed_ms, now_ms) >= self.until_ms else None


class Person(Struct, frozen=True):
    """An approver: a name, roles, and keys (their 32 bytes) with their validity."""

    name: str
    roles: frozenset[str]
    keys: dict[bytes, Validity]
    validity: Validity


class Roster(Struct, frozen=True):
    """All approvers of a file. `digest` is that of its text."""

    digest: str
    by_name: dict[str, Person]
    by_key: dict[bytes, Person]
    most_age_ms: int = _DAY_MS

    @property
    def roles(self) -> frozenset[str]:
        """The roles that some person has."""
        return frozenset[str]().union(*(one.roles for one in self.by_name.values()))


def read_people(path: Path) -> Roster:
    """Read and check a file of approvers. Raises UsageError naming the path inside it."""
    text, found = read_toml(path, _REMEDY)
    return people_of(found, str(path), sha256(text).hexdigest())


def people_of(found: Mapping[str, Any], file: str, digest: str) -> Roster:
    """Check the content of a file of approvers. Raises UsageError naming the path inside it."""
    return _RosterReader(file, _REMEDY).people(found, digest)


class _RosterReader(FieldReader):
    def people(self, found: Mapping[str, Any], digest: str) -> Roster:
        self.fields(found, {"person": list, "answers_hold": str})
        by_name: dict[str, Person] = {}
        by_key: dict[bytes, Person] = {}
        for number, table in enumerate(found.get("person", [])):
            person = self._person(table, f"person[{number}]")
            if person.name in by_name:
                raise self.wrong(f"person[{number}].name", f"{person.name!r} is there twice")
            by_name[person.name] = person
            for key in person.keys:
                if key in by_key:
                    # A key that two people hold would let one of them answer as two.
                    whose = f"{by_key[key].name!r} has the same key"
                    raise self.wrong(f"person[{number}].keys", whose, "Give each person keys of their own")
                by_key[key] = person
        if not by_name:
            raise self.wrong("person", "there is no person", "Add a table [[person]]")
        age_ms = duration_ms(found.get("answers_hold", "1d"))
        if not age_ms:
            raise self.wrong("answers_hold", "it is not a time", "Write it as 15m, 12h or 1d")
        return Roster(digest, by_name, by_key, age_ms)

    def _person(self, table: object, path: str) -> Person:
        known = {"name": str, "roles": list, "keys": list, **_TIMES}
        found = self.fields(table, known, path)
        try:
            name = check_id(found.get("name", ""), "name")
        except UsageError as error:
            raise self.wrong(f"{path}.name", error.what) from None
        roles = found.get("roles", [])
        for number, role in enumerate(roles):
            if not isinstance(role, str) or not role or role.startswith(ROLE):
                raise self.wrong(
                    f"{path}.roles[{number}]", f"{role!r} is no role", 'Write "ops", for example'
                )
        keys: dict[bytes, Validity] = {}
        for number, given in enumerate(found.get("keys", [])):
            key, validity = self._key(given, f"{path}.keys[{number}]")
            if key in keys:
                raise self.wrong(f"{path}.keys[{number}]", "the key is there twice")
            keys[key] = validity
        if not keys:
            raise self.wrong(f"{path}.keys", "there is no key", "Give the line of ~/.ssh/id_ed25519.pub")
        return Person(name, frozenset(roles), keys, self._validity(found, path))

    def _key(self, given: object, path: str) -> tuple[bytes, Validity]:
        found = {"key": given} if isinstance(given, str) else self.fields(given, {"key": str, **_TIMES}, path)
        try:
            return read_key(found.get("key", "")), self._validity(found, path)
        except BadSignature as error:
            raise self.wrong(path, str(error), "Give the line of ~/.ssh/id_ed25519.pub") from None

    def _validity(self, found: Mapping[str, Any], path: str) -> Validity:
        revoked = found.get("revoked", False)
        if isinstance(revoked, bool):
            revoked_ms = _ALWAYS_MS if revoked else _NEVER_MS
        else:
            revoked_ms = self._moment(revoked, f"{path}.revoked")
        from_ms = self._moment(found["from"], f"{path}.from") if "from" in found else _ALWAYS_MS
        until_ms = self._moment(found["until"], f"{path}.until") if "until" in found else _NEVER_MS
        if from_ms >= until_ms:
            raise self.wrong(f"{path}.until", "it is not after `from`")
        return Validity(from_ms, until_ms, revoked_ms)

    def _moment(self, given: datetime, path: str) -> int:
        if given.tzinfo is None:
            raise self.wrong(path, "it has no time zone", "Write it as 2026-05-01T12:00:00Z")
        return int(given.astimezone(UTC).timestamp() * 1000)


_TIMES = {"from": datetime, "until": datetime, "revoked": (datetime, bool)}
