"""The chain: whatever happens to a run's records, reading it once tells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ninelives.core.errors import Corrupt
from ninelives.core.journal import chain
from ninelives.core.model.run import Kind, Record, StepKind

Content = tuple[Kind, str, int, bytes, tuple[bytes, ...]]

digests = st.lists(st.binary(min_size=16, max_size=16), max_size=2).map(tuple)
contents = st.lists(
    st.tuples(
        st.sampled_from(Kind),
        st.text(st.characters(codec="utf-8"), max_size=5),
        st.integers(0, 2**63),
        st.binary(max_size=5),
        digests,
    ),
    min_size=1,
    max_size=6,
)


def sealed(content: list[Content], run: str = "r1") -> tuple[Record, ...]:
    return chain.seal(0, chain.start(run), content)


def verify(records: tuple[Record, ...] | list[Record], length: int, head: bytes, run: str = "r1") -> None:
    chain.verify(run, chain.start(run), 0, records, length=length, head=head)


@given(contents)
def test_what_was_sealed_verifies(content: list[Content]) -> None:
    records = sealed(content)
    assert [record.seq for record in records] == list(range(len(content)))
    assert all(len(record.check) == chain.CHECK_BYTES for record in records)
    verify(records, len(records), records[-1].check)


@given(contents, st.data())
def test_sealing_in_parts_is_sealing_at_once(content: list[Content], data: st.DataObject) -> None:
    records = sealed(content)
    cut = data.draw(st.integers(0, len(content)))
    head = records[cut - 1].check if cut else chain.start("r1")
    assert chain.seal(cut, head, content[cut:]) == records[cut:]
    chain.verify("r1", head, cut, records[cut:], length=len(records), head=records[-1].check)


CHANGES = {
    "kind": st.sampled_from(Kind),
    "step": st.text(st.characters(codec="utf-8"), max_size=5),
    "at_ms": st.integers(0, 2**63),
    "body": st.binary(max_size=5),
    "blobs": digests,
    "check": st.binary(max_size=17),
    "seq": st.integers(0, 9),
}


@given(contents, st.data())
def test_any_changed_field_of_any_record_is_corrupt(content: list[Content], data: st.DataObject) -> None:
    records = list(sealed(content))
    length, head = len(records), records[-1].check
    seq = data.draw(st.integers(0, length - 1))
    field = data.draw(st.sampled_from(sorted(CHANGES)))
    old = getattr(records[seq], field)
    records[seq] = replace(records[seq], **{field: data.draw(CHANGES[field].filter(lambda new: new != old))})
    with pytest.raises(Corrupt) as caught:
        verify(records, length, head)
    assert (caught.value.run, caught.value.seq) == ("r1", seq)


@given(contents, st.data())
def test_a_dropped_record_is_corrupt(content: list[Content], data: st.DataObject) -> None:
    records = list(sealed(content))
    length, head = len(records), records[-1].check
    del records[data.draw(st.integers(0, length - 1))]
    with pytest.raises(Corrupt):
        verify(records, length, head)


@given(contents, st.data())
def test_a_duplicated_or_added_record_is_corrupt(content: list[Content], data: st.DataObject) -> None:
    records = list(sealed(content))
    length, head = len(records), records[-1].check
    twice = data.draw(st.sampled_from(records))
    with pytest.raises(Corrupt):
        verify([*records, twice], length, head)
    place = data.draw(st.integers(0, length))
    with pytest.raises(Corrupt):
        verify([*records[:place], twice, *records[place:]], length, head)
    more = chain.seal(length, head, [content[0]])
    with pytest.raises(Corrupt):
        verify([*records, *more], length, head)


@given(contents.filter(lambda content: len(content) > 1), st.data())
def test_swapped_records_are_corrupt_even_if_renumbered(content: list[Content], data: st.DataObject) -> None:
    records = list(sealed(content))
    length, head = len(records), records[-1].check
    one, two = data.draw(st.lists(st.integers(0, length - 1), min_size=2, max_size=2, unique=True))
    records[one], records[two] = records[two], records[one]
    with pytest.raises(Corrupt):
        verify(records, length, head)
    renumbered = [replace(record, seq=seq) for seq, record in enumerate(records)]
    with pytest.raises(Corrupt):
        verify(renumbered, length, head)


@given(contents)
def test_records_cannot_move_between_runs(
    content: list[Content],
) -> None:
    records = sealed(content)
    with pytest.raises(Corrupt):
        verify(records, len(records), records[-1].check, run="r2")
    assert sealed(content, "r2")[-1].check != records[-1].check


@given(contents, st.binary(min_size=16, max_size=16))
def test_a_forged_head_or_length_is_corrupt(content: list[Content], forged: bytes) -> None:
    records = sealed(content)
    head = records[-1].check
    for length in (len(records) - 1, len(records) + 1):
        with pytest.raises(Corrupt):
            verify(records, length, head)
    if forged != head:
        with pytest.raises(Corrupt):
            verify(records, len(records), forged)


def test_a_resealed_tail_does_not_reach_the_head() -> None:
    content: list[Content] = [(Kind.RESULT, "step", 1, body, ()) for body in (b"a", b"b", b"c")]
    head = sealed(content)[-1].check
    forged = sealed([content[0], (Kind.RESULT, "step", 1, b"X", ()), content[2]])
    with pytest.raises(Corrupt):
        verify(forged, 3, head)


def test_fields_cannot_run_into_each_other() -> None:
    one: chain.Draft = (Kind.LOG, "ab", 1, b"c", ())
    two: chain.Draft = (Kind.LOG, "a", 1, b"bc", ())
    three: chain.Draft = (Kind.LOG, "a", 1, b"c", (b"b",))
    assert len({chain.link(b"", 0, draft, 1) for draft in (one, two, three)}) == 3


def test_the_checks_are_those_of_journals_that_exist() -> None:
    content: list[Content] = [
        (Kind.CREATED, "", 10, b"{}", ()),
        (Kind.RESULT, "#ä#0", 11, b"[1]", (b"x" * 16, b"y" * 16)),
    ]
    assert chain.start("r1").hex() == "c685d42913983f3501e8b5434fb6a151"
    assert [record.check.hex() for record in of_schema_1(content)] == [
        "5d2a8b592cdc8060921adc1e2704c9b0",
        "bdf2adc2839e8a7acc91794df902b519",
    ]
    told: list[chain.Draft] = [content[0], (*content[1], StepKind.ACTION, 12)]
    assert [record.check.hex() for record in chain.seal(0, chain.start("r1"), told, 3)] == [
        "84c9574fee63b9161f45b31fb93006d7",
        "72a3a11abdfd4407dbf2b1a876bc24d6",
    ]


def of_schema_1(content: list[Content]) -> list[Record]:
    """Return records as they were sealed before they said which life wrote them."""
    records: list[Record] = []
    head = chain.start("r1")
    for seq, draft in enumerate(content):
        head = chain.link(head, seq, draft, None)
        records.append(Record(seq, *draft, head))
    return records


def test_records_of_schema_1_are_followed_by_later_ones() -> None:
    old = of_schema_1([(Kind.CREATED, "", 10, b"{}", ()), (Kind.RESULT, "a#0", 11, b"1", ())])
    new = chain.seal(2, old[-1].check, [(Kind.RESULT, "b#0", 12, b"2", (), StepKind.READ, 1)], 2)
    verify([*old, *new], 3, new[-1].check)
    first = chain.seal(0, chain.start("r1"), [(Kind.CREATED, "", 10, b"{}", ())])
    late = Record(
        1, Kind.RESULT, "a#0", 11, b"1", (), chain.link(first[0].check, 1, content_of(old[1]), None)
    )
    with pytest.raises(Corrupt, match="older format"):
        verify([*first, late], 2, late.check)


def content_of(record: Record) -> Content:
    return record.kind, record.step, record.at_ms, record.body, record.blobs


@pytest.mark.parametrize("changes", [{"epoch": None}, {"epoch": None, "step_kind": None, "took_ms": None}])
def test_a_record_cannot_be_passed_off_as_one_of_schema_1(changes: dict[str, None]) -> None:
    (record,) = chain.seal(0, chain.start("r1"), [(Kind.LOG, "a", 1, b"c", ())], 1)
    with pytest.raises(Corrupt):
        verify([replace(record, **changes)], 1, record.check)


@pytest.mark.parametrize(
    "changes",
    [{"epoch": 2}, {"took_ms": 8}, {"took_ms": None}, {"step_kind": StepKind.READ}, {"step_kind": None}],
)
def test_a_changed_epoch_duration_or_kind_of_step_is_found(changes: dict[str, object]) -> None:
    (record,) = chain.seal(0, chain.start("r1"), [(Kind.RESULT, "a", 1, b"c", (), StepKind.ACTION, 7)], 1)
    verify([record], 1, record.check)
    with pytest.raises(Corrupt):
        verify([replace(record, **changes)], 1, record.check)


def test_damage_is_told_with_its_place_and_what_to_do() -> None:
    one, two, three = sealed([(Kind.RESULT, "step", 1, body, ()) for body in (b"a", b"b", b"c")])

    def told(records: list[Record], length: int = 3, head: bytes = three.check) -> tuple[str, int | None]:
        with pytest.raises(Corrupt) as caught:
            verify(records, length, head)
        error = caught.value
        assert error.run == "r1"
        assert error.remedy == (
            "Nothing of it was used; other runs continue. Restore the store from a backup, or end this run"
        )
        return error.what.removeprefix("the journal is damaged: "), error.seq

    assert told([one, three]) == ("record 1 is missing (found 2)", 1)
    assert told([one, replace(two, body=b"x"), three]) == ("record 1 fails its checksum", 1)
    assert told([one, two]) == ("2 records, but 3 were acknowledged", 2)
    assert told([one, two, three], 2, two.check) == ("3 records, but 2 were acknowledged", 3)
    moved = "the last record is not the one that the run's row names"
    assert told([one, two, three], 3, two.check) == (moved, 3)


def test_the_rest_of_a_journal_is_told_by_its_own_numbers() -> None:
    one, two, three = sealed([(Kind.RESULT, "step", 1, body, ()) for body in (b"a", b"b", b"c")])
    with pytest.raises(Corrupt, match="2 records, but 3 were acknowledged") as caught:
        chain.verify("r1", one.check, 1, [two], length=3, head=three.check)
    assert caught.value.seq == 2
