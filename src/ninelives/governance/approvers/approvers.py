"""The part of the governor that refuses answers: a wrong person, a wrong signature, a signature too old.

The worker asks it when it is about to take an answer. A refused answer is void: the item is asked again, with
the reason, and the run waits on. What was taken stays taken, also when its key expires or is revoked; but its
signature is verified again in each life, since any program with access to the store can write a journal. If
we die before an answer is taken, the next worker judges it again, by its own file and the clock at that time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from ninelives.core.clock import moment_text
from ninelives.core.errors import UsageError
from ninelives.core.journal.answers import Answer, Signed, read_answer
from ninelives.core.model.inbox import Item
from ninelives.governance.approvers.people import ROLE, Person, Roster, people_of, read_people
from ninelives.governance.approvers.ssh_signature import BadSignature, read_signature, require_library, verify
from ninelives.governance.approvers.statement import statement
from ninelives.governance.audit_log.entries import append
from ninelives.governance.names import names_role
from ninelives.store import DocumentStore
from ninelives.stores.store_id import store_id

LOGGER = logging.getLogger("ninelives")
FILE_VARIABLE = "NINELIVES_APPROVERS"
"""The environment variable with the path of a file of approvers, where the policy file names none."""
_HERE = Path()
SKEW_MS = 300_000
"""How far the clock that signed may be ahead of the store's."""


class Approvers:
    """Which answers count: a `governance.parts.ChecksAnswers`.

    `read` gives the people; it is called for each answer, so that a key is revoked when the file says so.
    """

    def __init__(self, read: Callable[[], Roster], now_ms: Callable[[], int]) -> None:
        self._read, self._now_ms = read, now_ms
        self._store = self._logged = ""
        require_library()
        self.people = read()

    def refresh(self, store: DocumentStore) -> None:
        """Read the id of the store, which signatures name, and the file; log the people in it.

        Raises StoreError, UsageError.
        """
        self._store = store_id(store)
        self.people = people = self._read()
        if people.digest != self._logged:
            # Each file once, by its digest, however many workers load it.
            listed = {one.name: sorted(one.roles) for one in people.by_name.values()}
            append(store, "approvers", id=f"approvers/{people.digest}", digest=people.digest, people=listed)
            self._logged = people.digest

    def refuses_answer(
        self, item: Item, *, to: str, not_by: str | Iterable[str] = (), is_taken: bool = False
    ) -> str | None:
        """Return why an answer does not count; None if it counts.

        `to` is a person, a role, or empty; `not_by` names people whose answer does not count here.
        """
        refused = {not_by} - {""} if isinstance(not_by, str) else set(not_by)
        try:
            return self._fault(item, to, refused, is_taken=is_taken)
        except UsageError as error:
            return f"it cannot be verified: {error.what}"
        except Exception as error:
            LOGGER.exception("run %s: the answer to %s cannot be verified", item.run, item.id)
            return f"it cannot be verified: {type(error).__name__}: {error}"

    def _fault(self, item: Item, to: str, not_by: set[str], *, is_taken: bool) -> str | None:
        answer = read_answer(item)
        # Read again for each answer: they are few, and a revocation must hold from the next one on.
        self.people = people = self._read()
        if answer.signed is None:
            # A name that is only claimed does not show that it was another person, either.
            if names_role(to) or to in people.by_name or not_by:
                return f"{item.by or 'its author'} did not sign it{_for(to)}"
            return None
        found = self._author(item, answer, answer.signed, people, is_taken=is_taken)
        if isinstance(found, str):
            return found
        person = found
        if names_role(to):
            if to.removeprefix(ROLE) not in person.roles:
                return f"{person.name} does not have {to!r}"
        elif to and person.name != to:
            return f"{person.name} is not {to}"
        return f"{person.name} may not answer this one" if person.name in not_by else None

    def _author(
        self, item: Item, answer: Answer, signed: Signed, people: Roster, *, is_taken: bool
    ) -> Person | str:
        """Return the person that signed an answer, or why the signature does not count."""
        try:
            found = read_signature(signed.signature)
            person = people.by_key.get(found.key)
            if person is None:
                return f"the key that signed it for {item.by} belongs to no approver"
            text = statement(self._required_store(), item, answer, item.by, signed)
            verify(found, text)
        except BadSignature as error:
            return f"the signature of {item.by} does not count: {error}"
        if person.name != item.by:
            return f"the key of {person.name} signed it, not one of {item.by}"
        if is_taken:
            return person
        now_ms = self._now_ms()
        fault = person.validity.fault(f"{person.name} as an approver", signed.at_ms, now_ms)
        fault = fault or person.keys[found.key].fault(f"the key of {person.name}", signed.at_ms, now_ms)
        return fault or _age_fault(signed, people.most_age_ms, item.opened_ms, now_ms) or person

    def _required_store(self) -> str:
        if not self._store:
            raise BadSignature("the store's own id is not known yet")
        return self._store


def _for(to: str) -> str:
    return f", and it is for {to!r}" if to else ""


def _age_fault(signed: Signed, most_age_ms: int, opened_ms: int, now_ms: int) -> str | None:
    if signed.at_ms > now_ms + SKEW_MS:
        return f"it was signed in the future, at {moment_text(signed.at_ms)}: check that clock"
    if signed.at_ms + SKEW_MS < opened_ms:
        return f"it was signed at {moment_text(signed.at_ms)}, before it was asked"
    until_ms = min(signed.until_ms, signed.at_ms + most_age_ms)
    return f"it counted until {moment_text(until_ms)}" if now_ms >= until_ms else None


# --------------------------------------------------------------------------------------- configuration


def check(table: Mapping[str, Any], where: Path = _HERE) -> Callable[[], Roster]:
    """Check the table `[approvers]` of a policy file; return what reads the people.

    A relative path in it is one from `where`, by default the working directory of the process. Raises
    UsageError for anything that is unknown or wrong, also in the file that it names.
    """
    if "file" in table:
        if len(table) > 1 or not isinstance(table["file"], str):
            raise UsageError(
                "[approvers]: `file` goes with nothing else, and is a path", remedy="See docs/approvals.md"
            )
        return _reader(where / table["file"])
    text = repr(sorted(table.items())).encode()
    found = people_of(table, "[approvers]", sha256(text).hexdigest())
    return lambda: found


def check_roles(wanted: Iterable[str], people: Roster | None) -> None:
    """Check that a person has each role that a rule asks (`to=`), or each name. Raises UsageError."""
    for to in sorted(wanted):
        if names_role(to) and people is None:
            raise UsageError(
                f"a rule asks {to!r}, and no file says which people have that role",
                remedy='Name one in the policy: [approvers] file = "approvers.toml"; see docs/approvals.md',
            )
        if names_role(to) and people is not None and to.removeprefix(ROLE) not in people.roles:
            raise UsageError(
                f"a rule asks {to!r}, and no approver has that role",
                remedy="Give the role to a person in the file of approvers; see docs/approvals.md",
            )
        if to and not names_role(to) and people is not None and to not in people.by_name:
            # No person would have to sign: a name that is no approver's is only claimed.
            is_role = to in people.roles
            raise UsageError(
                f"a rule asks {to!r}, and no approver has that name",
                remedy=f'Write to = "{ROLE}{to}"'
                if is_role
                else f"There are: {', '.join(sorted(people.by_name))}; or leave out `to`",
            )


def configured(table: Mapping[str, Any] | None, where: Path, now_ms: Callable[[], int]) -> Approvers | None:
    """Return the approvers of a policy's table, or of the file in the environment; None without either.

    Raises UsageError.
    """
    if table:
        return Approvers(check(table, where), now_ms)
    named = os.environ.get(FILE_VARIABLE)
    return Approvers(_reader(Path(named)), now_ms) if named else None


def of_policy(policy: Any, now_ms: Callable[[], int], where: Path = _HERE) -> Approvers | None:
    """Return the approvers that a policy names; None if neither it nor the environment names any.

    Raises UsageError, also for a rule that asks a role which no approver has, or several people of no role.
    """
    tables: Mapping[str, Any] = getattr(policy, "tables", {})
    found = configured(tables.get("approvers"), where, now_ms)
    rules = [rule for one in getattr(policy, "members", (policy,)) for rule in _rules(one)]
    check_roles({rule.to for rule in rules}, found.people if found is not None else None)
    for rule in rules:
        if found is not None and rule.approvals > 1 and not rule.to:
            raise UsageError(
                f"rule {rule.id!r} asks {rule.approvals} people, and anyone may answer under any name",
                remedy='Name a role, such as to = "role:ops": its people sign their answers',
            )
    return found


def _rules(policy: object) -> tuple[Any, ...]:
    """Return the rules of a policy file; a policy that is a function has none to check before it is asked."""
    return tuple(getattr(getattr(policy, "spec", None), "rules", ()))


def _reader(path: Path) -> Callable[[], Roster]:
    def read() -> Roster:
        return read_people(path)

    read()
    return read
