"""Which answers count: each that should not is refused in words, and the right one beside it counts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.structs import replace

from ninelives.core.errors import UsageError
from ninelives.core.journal.answers import (
    Answer,
    ItemBody,
    Says,
    Signed,
    read_answer,
    write_answer,
    write_item_body,
)
from ninelives.core.model.inbox import Item, ItemKind, ItemState
from ninelives.governance.approvers.approvers import Approvers, check, check_roles, configured
from ninelives.governance.approvers.people import read_people
from ninelives.governance.approvers.statement import statement
from ninelives.stores.memory import MemoryStore
from ninelives.stores.store_id import store_id
from tests.clocks import SteppingClock
from tests.governance.keys import SshKey

HOUR_MS = 3_600_000


class Office:
    """A store, people with keys, the file that lists them, and an item that waits."""

    def __init__(self, home: Path) -> None:
        self.home, self.clock = home, SteppingClock()
        self.store = MemoryStore(self.clock)
        self.file = home / "approvers.toml"
        self.ada, self.bob, self.spare, self.eve = (SshKey(home, one) for one in ("ada", "bob", "ada", "eve"))
        self.write()
        self.approvers = Approvers(check({"file": self.file.name}, home), self.store.now_ms)
        self.approvers.refresh(self.store)
        self.item = Item(
            id="0123456789abcdef",
            run="refund-7",
            kind=ItemKind.APPROVAL,
            step="refund#0",
            digest=b"digest",
            body=write_item_body(
                ItemBody(what="May refund be carried out?", arguments={"cents": Raw(b"25000")})
            ),
            to="role:ops",
            deadline_ms=None,
            opened_ms=self.store.now_ms(),
        )

    def write(self, ada: str = "", key: str = "") -> None:
        """Write the file of approvers, with more fields of ada and of her first key."""
        self.file.write_text(f'''
            answers_hold = "12h"
            [[person]]
            name = "ada"
            roles = ["ops"]
            keys = [{{ key = "{self.ada.public}" {key} }}, "{self.spare.public}"]
            {ada}
            [[person]]
            name = "bob"
            roles = ["finance"]
            keys = ["{self.bob.public}"]
        ''')  # fmt: skip

    def answered(
        self,
        key: SshKey | None,
        by: str,
        *,
        item: Item | None = None,
        store: str = "",
        says: Says = Says.APPROVED,
        at_ms: int | None = None,
        until_ms: int | None = None,
        namespace: str = "ninelives",
    ) -> Item:
        """Return the item with an answer; `item` and `store` are those that were signed."""
        at_ms = self.store.now_ms() if at_ms is None else at_ms
        signed = Signed(at_ms, at_ms + HOUR_MS if until_ms is None else until_ms)
        answer = Answer(says, note="because", signed=signed if key is not None else None)
        if key is not None:
            text = statement(store or store_id(self.store), item or self.item, answer, by, signed)
            answer = replace(answer, signed=replace(signed, signature=key.sign(text, namespace)))
        return self.given(answer, by)

    def given(self, answer: Answer, by: str) -> Item:
        """Return the item with an answer as it is."""
        body, now_ms = write_answer(answer), self.store.now_ms()
        return replace(self.item, state=ItemState.ANSWERED, answer=body, by=by, answered_ms=now_ms)

    def why(self, item: Item, not_by: str = "") -> str | None:
        """Return why an answer does not count."""
        return self.approvers.refuses_answer(item, to=item.to, not_by=not_by)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def test_a_signed_answer_of_a_person_with_the_role_counts(office: Office) -> None:
    assert office.why(office.answered(office.ada, "ada")) is None
    assert office.why(office.answered(office.spare, "ada", says=Says.DENIED)) is None
    office.item = replace(office.item, to="bob")
    assert office.why(office.answered(office.bob, "bob")) is None


REFUSED: dict[str, tuple[Callable[[Office], Item], str]] = {
    "unsigned": (lambda o: o.answered(None, "ada"), "ada did not sign it, and it is for 'role:ops'"),
    "by a stranger": (lambda o: o.answered(o.eve, "ada"), "belongs to no approver"),
    "in another name": (lambda o: o.answered(o.ada, "bob"), "the key of ada signed it, not one of bob"),
    "wrong role": (lambda o: o.answered(o.bob, "bob"), "bob does not have 'role:ops'"),
    "wrong namespace": (lambda o: o.answered(o.ada, "ada", namespace="git"), "it was made for 'git'"),
    "of another item": (
        lambda o: o.answered(o.ada, "ada", item=replace(o.item, id="fedcba9876543210")),
        "another was signed",
    ),
    "of another run": (lambda o: o.answered(o.ada, "ada", item=replace(o.item, run="r")), "another was"),
    "of another step": (lambda o: o.answered(o.ada, "ada", item=replace(o.item, step="s#1")), "another was"),
    "of another store": (lambda o: o.answered(o.ada, "ada", store="ffff"), "another was signed"),
    "of another role": (lambda o: o.answered(o.ada, "ada", item=replace(o.item, to="ada")), "another was"),
    "of another digest": (lambda o: o.answered(o.ada, "ada", item=replace(o.item, digest=b"x")), "other"),
    "of other arguments": (
        lambda o: o.answered(
            o.ada, "ada", item=replace(o.item, body=o.item.body.replace(b"25000", b"25"))
        ),
        "another was signed",
    ),
    "expired": (lambda o: o.answered(o.ada, "ada", until_ms=o.store.now_ms()), "it counted until"),
    "stale": (
        lambda o: o.answered(o.ada, "ada", at_ms=o.store.now_ms() - HOUR_MS, until_ms=2**40),
        "before it was asked",
    ),
    "from the future": (lambda o: o.answered(o.ada, "ada", at_ms=o.store.now_ms() + HOUR_MS), "future"),
    "no signature": (
        lambda o: o.given(Answer(Says.APPROVED, signed=Signed(0, 2**40, "AAAA")), "ada"),
        "the signature of ada does not count",
    ),
    "no answer": (lambda o: replace(o.answered(o.ada, "ada"), answer=b"{"), "it cannot be verified"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_count_is_refused_in_words(office: Office, what: str) -> None:
    make, why = REFUSED[what]
    assert why in str(office.why(make(office)))
    assert office.why(office.answered(office.ada, "ada")) is None


def test_a_signature_for_another_verdict_or_note_does_not_count(office: Office) -> None:
    given = read_answer(office.answered(office.ada, "ada", says=Says.DENIED))
    for changed in (replace(given, says=Says.APPROVED), replace(given, note="")):
        assert "another was signed" in str(office.why(office.given(changed, "ada")))
    assert given.signed is not None
    longer = replace(given, signed=replace(given.signed, until_ms=given.signed.until_ms + 1))
    assert "another was signed" in str(office.why(office.given(longer, "ada")))


def test_no_answer_counts_for_longer_than_the_file_says(office: Office) -> None:
    answer = office.answered(office.ada, "ada", until_ms=2**40)
    office.clock.advance(12 * HOUR_MS)
    assert "it counted until" in str(office.why(answer))


def test_a_revocation_counts_from_the_next_answer_on_without_a_restart(office: Office) -> None:
    answer, other = office.answered(office.ada, "ada"), office.answered(office.spare, "ada")
    assert office.why(answer) is None
    now = datetime.fromtimestamp(office.store.now_ms() / 1000, UTC).isoformat()
    office.write(key=f", revoked = {now}")
    assert office.why(answer) == "the key of ada is revoked"
    assert office.why(other) is None
    office.write(ada="revoked = true")
    assert office.why(other) == "ada as an approver is revoked"
    office.write(ada="until = 1970-01-01T00:00:01Z")
    assert "no longer valid" in str(office.why(other))
    office.write(ada="from = 2999-01-01T00:00:00Z")
    assert "not valid yet" in str(office.why(other))
    office.write(ada="rolls = 1")
    assert "there is no such field" in str(office.why(other))
    office.file.unlink()
    assert "cannot be read" in str(office.why(other))
    office.write()
    assert office.why(answer) is None


def test_who_may_not_answer_is_known_by_person_and_not_by_key(office: Office) -> None:
    assert office.why(office.answered(office.ada, "ada"), not_by="bob") is None
    for key in (office.ada, office.spare):
        assert office.why(office.answered(key, "ada"), not_by="ada") == "ada may not answer this one"
    office.item = replace(office.item, to="")
    assert office.why(office.answered(None, "anna")) is None
    assert office.why(office.answered(None, "anna"), not_by="ada") == "anna did not sign it"
    office.item = replace(office.item, to="ada")
    assert "did not sign it" in str(office.why(office.answered(None, "ada")))


ADA = 'name = "ada"\nroles = ["ops"]\nkeys = ["KEY"]\n'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no person"),
        ("person = 1", "person: it is not a list"),
        ("people = []", "people: there is no such field"),
        (f"[[person]]\n{ADA}age = 3", "person[0].age: there is no such field"),
        (f"[[person]]\n{ADA}[[person]]\n{ADA}", "'ada' is there twice"),
        (f"[[person]]\n{ADA}[[person]]\n{ADA.replace('ada', 'bob')}", "'ada' has the same key"),
        (f"[[person]]\n{ADA.replace('KEY', 'ssh-rsa AAAA')}", "is not the key type ssh-ed25519"),
        (f"[[person]]\n{ADA.replace('KEY', 'ssh-ed25519 A!')}", "person[0].keys[0]: it is not base64"),
        (f"[[person]]\n{ADA.replace('ops', 'role:ops')}", "person[0].roles[0]: 'role:ops' is no role"),
        ('[[person]]\nname = "ada"', "person[0].keys: there is no key"),
        (f"[[person]]\n{ADA}until = 2026-01-01T00:00:00", "it has no time zone"),
        (f"[[person]]\n{ADA}until = 'soon'", "person[0].until: it is not a time"),
        (f"[[person]]\n{ADA}from = 2026-01-02T00:00:00Z\nuntil = 2026-01-01T00:00:00Z", "not after `from`"),
        (f'answers_hold = "0s"\n[[person]]\n{ADA}', "answers_hold: it is not a time"),
        ("[[person]", "is not TOML"),
        (f"deep = {'[' * 9_000}{']' * 9_000}", "is not TOML: RecursionError"),
    ],
)
def test_a_file_with_something_wrong_is_refused_with_the_path_to_it(
    office: Office, text: str, why: str
) -> None:
    office.file.write_text(text.replace("KEY", office.ada.public))
    with pytest.raises(UsageError) as refused:
        read_people(office.file)
    assert why in str(refused.value)


def test_the_table_of_a_policy_names_a_file_or_is_one(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline = {"person": [{"name": "ada", "roles": ["ops"], "keys": [office.ada.public]}]}
    assert set(check(inline, office.home)().by_name) == {"ada"}
    wrong: tuple[dict[str, object], ...] = (
        {"file": "approvers.toml", "person": []},
        {"file": 1},
        {"file": "none.toml"},
        {"roles": []},
    )
    for table in wrong:
        with pytest.raises(UsageError):
            check(table, office.home)
    check_roles(["role:ops", "ada", ""], office.approvers.people)
    for people in (office.approvers.people, None):
        with pytest.raises(UsageError, match="role:sales"):
            check_roles(["role:sales"], people)
        for mistyped in ("Role:ops", " role:ops", "role :ops"):
            with pytest.raises(UsageError, match="ops"):
                check_roles([mistyped], people)
    for nobody, remedy in (("ops", 'to = "role:ops"'), ("adda", "There are: ada")):
        with pytest.raises(UsageError, match=remedy):
            check_roles([nobody], office.approvers.people)
    assert configured(None, office.home, office.store.now_ms) is None
    monkeypatch.setenv("NINELIVES_APPROVERS", str(office.file))
    assert configured({}, office.home, office.store.now_ms) is not None
