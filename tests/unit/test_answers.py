"""What people are asked and what they may answer: the table, the schema, the façade's verbs."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import msgspec
import pytest
from msgspec import Raw

from ninelives.core.errors import Corrupt, UsageError
from ninelives.core.journal.answers import (
    FITTING,
    VERBS,
    Answer,
    ItemBody,
    Says,
    check_answer,
    item_id,
    read_answer,
    read_item_body,
    write_answer,
    write_item_body,
)
from ninelives.core.model.inbox import Item, ItemKind
from ninelives.core.values.codec import codec_for
from ninelives.core.values.json_schema import check, schema_for


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass
class Refund:
    order: str
    cents: int
    notes: list[str | None]
    mood: Mood = Mood.GOOD


@dataclass
class Tree:
    name: str
    children: list[Tree]


class Pair(NamedTuple):
    left: int
    right: str = ""


def item(kind: ItemKind, asked: ItemBody | None = None, answer: bytes = b"") -> Item:
    body = write_item_body(asked or ItemBody("Shall we?"))
    return Item(
        id="i1",
        run="r1",
        kind=kind,
        step="s",
        digest=b"d",
        body=body,
        to="",
        deadline_ms=None,
        opened_ms=0,
        answer=answer,
    )


def test_every_kind_of_item_has_answers_and_every_answer_a_verb() -> None:
    assert set(FITTING) == set(ItemKind)
    assert set(VERBS) == set(Says)
    assert {says for fitting in FITTING.values() for says in fitting} == set(Says)


@pytest.mark.parametrize("kind", list(ItemKind))
@pytest.mark.parametrize("says", list(Says))
def test_an_answer_of_another_kind_is_refused_naming_those_that_fit(kind: ItemKind, says: Says) -> None:
    if says in FITTING[kind]:
        check_answer(item(kind), Answer(says))
        return
    with pytest.raises(UsageError, match="does not answer it") as refused:
        check_answer(item(kind), Answer(says))
    assert refused.value.run == "r1"
    assert all(VERBS[one] in str(refused.value) for one in FITTING[kind])


def test_bodies_come_back() -> None:
    asked = ItemBody("Refund?", arguments={"cents": Raw(b"5")}, key="k", schema={"type": "integer"})
    assert read_item_body(item(ItemKind.APPROVAL, asked)) == asked
    answer = Answer(Says.VALUE, Raw(b"5"), "because")
    assert read_answer(item(ItemKind.QUESTION, answer=write_answer(answer))) == answer


def test_bodies_of_others_are_corrupt() -> None:
    with pytest.raises(Corrupt):
        read_answer(item(ItemKind.QUESTION, answer=b'{"says":"perhaps"}'))
    with pytest.raises(Corrupt):
        read_item_body(msgspec.structs.replace(item(ItemKind.QUESTION), body=b"?"))


def test_only_an_option_answers_a_question_with_options() -> None:
    asked = item(ItemKind.QUESTION, ItemBody("Which?", options=(Raw(b'"a"'), Raw(b"1"))))
    check_answer(asked, Answer(Says.VALUE, Raw(b'"a"')))
    for wrong in (b'"b"', b"true", b"1.0"):
        with pytest.raises(UsageError, match="none of the options"):
            check_answer(asked, Answer(Says.VALUE, Raw(wrong)))


def test_an_id_is_the_same_for_the_same_and_no_other() -> None:
    assert item_id("r", "a", 1) == item_id("r", "a", 1)
    assert len({item_id("r", "a", 1), item_id("r", "a1"), item_id("ra", 1), item_id("r", "a", 2)}) == 4


FITS: list[tuple[Any, object]] = [
    (str, "x"),
    (int, 5),
    (float, 5),
    (bool, True),
    (None, None),
    (Literal["a", 2], 2),
    (Mood, "bad"),
    (int | None, None),
    (list[int], [1, 2]),
    (tuple[int, str], [1, "a"]),
    (Pair, [1]),
    (dict[str, int], {"a": 1}),
    (Refund, {"order": "o", "cents": 1, "notes": ["x", None]}),
    (Refund | Tree, {"name": "a", "children": []}),
    (Tree, {"name": "a", "children": [{"name": "b", "children": []}]}),
    (datetime, "2026-01-01T00:00:00Z"),
    (Decimal, "1.5"),
    (Any, {"whatever": [1]}),
]
MISFITS: list[tuple[Any, object, str]] = [
    (str, 5, "$"),
    (int, True, "$"),
    (int, 1.5, "$"),
    (Literal["a"], "b", "$"),
    (Mood, "so so", "$"),
    (list[int], [1, "a"], "$[1]"),
    (tuple[int, str], [1], "$"),
    (Pair, [1, "a", 2], "$"),
    (dict[str, int], {"a": None}, "$.a"),
    (Refund, {"order": "o", "notes": []}, "$"),
    (Refund, {"order": "o", "cents": 1, "notes": [3]}, "$.notes[0]"),
    (Refund, {"order": "o", "cents": 1, "notes": [], "more": 1}, "$.more"),
    (datetime, "2026-01-01T00:00:00", "$"),
    (Decimal, "much", "$"),
]


@pytest.mark.parametrize(("annotation", "value"), FITS)
def test_what_the_type_takes_fits_its_schema(annotation: Any, value: object) -> None:
    codec = codec_for(annotation)
    codec.decode(msgspec.json.encode(value))
    check(schema_for(codec), value, what="it")


@pytest.mark.parametrize(("annotation", "value", "path"), MISFITS)
def test_what_does_not_fit_is_refused_with_its_path(annotation: Any, value: object, path: str) -> None:
    with pytest.raises(UsageError, match="does not fit") as refused:
        check(schema_for(codec_for(annotation)), value, what="it", run="r1")
    assert (refused.value.path, refused.value.run) == (path, "r1")


def test_a_schema_is_made_of_json() -> None:
    for annotation, _ in FITS:
        schema = schema_for(codec_for(annotation))
        assert msgspec.json.decode(msgspec.json.encode(schema)) == schema


def test_times_are_shown_as_the_codec_writes_them() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    data = codec_for(datetime).encode(moment)
    check(schema_for(codec_for(datetime)), msgspec.json.decode(data), what="it")
