"""Names are checked in one way, and keys are printable, short, deterministic and never shared by mistake."""

import dataclasses
import datetime as dt
import decimal
import enum
import unicodedata
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ninelives.core.errors import BadName, UsageError
from ninelives.core.ids import (
    check_id,
    key_template,
    parse_step_id,
    positional_key,
    step_id,
)
from tests.unit import sample_types as types

anything = st.text(max_size=80)
counts = st.integers(0, 2**63 - 1)


def template_key(template: str, arguments: dict[str, Any]) -> str:
    """Fill a template once."""
    return key_template(template, arguments.keys())(arguments)


@pytest.mark.parametrize("value", ["a", "../../etc", "a:{b}", "naïve 東京", "x" * 255, "%s;--", "ticket 42"])
def test_printable_ids_are_data_and_accepted(value: str) -> None:
    assert check_id(value, "run id") == value
    assert check_id(value, "key") == value


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("", "empty"),
        ("x" * 256, "256 characters"),
        ("x" * 10_240, "10240 characters"),
        ("a\nb", "position 1"),
        ("a\r\n", "position 1"),
        ("\x1b[31mred", "position 0"),
        ("nul\0", "position 3"),
        ("\ud800", "position 0"),
        ("ab\u202ecd", "RIGHT-TO-LEFT OVERRIDE"),
        ("zero\u200bwidth", "ZERO WIDTH SPACE"),
        (" ", "white space"),
        (" a", "begins or ends"),
        ("a ", "begins or ends"),
        ("\u3164", "HANGUL FILLER"),
        ("a\u034fb", "COMBINING GRAPHEME JOINER"),
        ("a\ufe0f", "VARIATION SELECTOR-16"),
        ("\u2800", "BRAILLE PATTERN BLANK"),
        ("\U000e0100", "invisible|not printable"),
        (None, "NoneType"),
        (7, "int"),
        (b"a", "bytes"),
    ],
)
def test_unusable_id_is_refused_with_the_reason_and_a_remedy(value: Any, told: str) -> None:
    with pytest.raises(BadName, match=told) as caught:
        check_id(value, "run id")
    assert "run id" in caught.value.what
    assert caught.value.remedy
    assert str(caught.value).isprintable()
    with pytest.raises(ValueError, match="key"):
        check_id(value, "key")


def test_look_alike_spellings_are_one_id() -> None:
    assert check_id("cafe\u0301", "run id") == check_id("caf\u00e9", "run id") == "caf\u00e9"
    assert check_id("e\u0301" * 255, "run id") == "\u00e9" * 255


@given(anything)
def test_checked_id_is_stable(value: str) -> None:
    try:
        checked = check_id(value, "id")
    except BadName:
        return
    assert check_id(checked, "id") == checked


# -------------------------------------------------------------------------------------------- positions


@given(
    st.tuples(anything, counts, anything, anything, counts),
    st.tuples(anything, counts, anything, anything, counts),
)
def test_positional_keys_are_injective_short_and_printable(left: Any, right: Any) -> None:
    key = positional_key(*left)
    assert len(key) <= 255
    assert key.isascii()
    assert check_id(key, "key") == key
    assert (key == positional_key(*right)) == (left == right)


separators = st.text("ab:#%~/é235", max_size=70)


@given(*[separators] * 6)
def test_separators_in_parts_cannot_be_confused(a: str, b: str, c: str, d: str, e: str, f: str) -> None:
    assume((a, b, c) != (d, e, f))
    assert positional_key(a, 1, b, c, 1) != positional_key(d, 1, e, f, 1)


def test_positional_key_is_the_same_in_every_version() -> None:
    assert positional_key("ticket-42", 0, "main", "refund", 3) == "nl:ticket-42:0:main:refund:3"
    assert positional_key("a:b", 1, "", "é", 0) == "nl:a%3Ab:1::%C3%A9:0"


def test_long_parts_are_shortened_to_their_digest() -> None:
    key, other = (
        positional_key("r" * 254 + last, 2**63 - 1, "b" * 5000, "s" * 255, 2**63 - 1) for last in "xy"
    )
    assert key != other
    assert len(key) <= 255


def test_shortened_part_cannot_be_forged() -> None:
    shortened = positional_key("r" * 100, 0, "b", "s", 0).split(":")[1]
    assert positional_key(shortened, 0, "b", "s", 0) != positional_key("r" * 100, 0, "b", "s", 0)


@given(anything, anything, counts)
def test_step_ids_can_be_read_back(branch: str, name: str, n: int) -> None:
    assert parse_step_id(step_id(branch, name, n)) == (branch, name, n)


@given(separators, separators, counts)
def test_step_ids_with_separators_can_be_read_back(branch: str, name: str, n: int) -> None:
    assert parse_step_id(step_id(branch, name, n)) == (branch, name, n)


@pytest.mark.parametrize(
    "text", ["", "a", "a#b", "a#b#", "a#b#01", "a#b#-1", "a#b#1#2", "a%2#%41#1x", "a#b#\u0661", "%23%#b#1%"]
)
def test_other_texts_are_no_step_ids(text: str) -> None:
    with pytest.raises(BadName, match="step id"):
        parse_step_id(text)


def test_escapes_in_names_are_escaped_themselves() -> None:
    assert parse_step_id(step_id("%23", "%2523", 1)) == ("%23", "%2523", 1)
    assert step_id("%23", "a", 1) != step_id("#", "a", 1)


@pytest.mark.parametrize("n", [-1, True, 1.0, "1", 2**63])
def test_count_must_be_a_whole_number(n: Any) -> None:
    with pytest.raises(UsageError, match="count"):
        step_id("b", "s", n)


# -------------------------------------------------------------------------------------------- templates

scalars = (
    st.text(max_size=12)
    | st.text("a:-_.=%~", max_size=6)
    | st.integers()
    | st.booleans()
    | st.uuids()
    | st.dates()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.sampled_from(types.Color)
)


def exact(value: Any) -> Any:
    return (type(value), value)


@pytest.mark.parametrize("template", ["a:{x}:{y}", "{x}-{y}", "{x}_b_{y}", "r.{x}.{y}.z", "{x} {y}"])
@given(data=st.data())
def test_other_arguments_give_another_key(template: str, data: st.DataObject) -> None:
    left, right = ({"x": data.draw(scalars), "y": data.draw(scalars)} for _ in range(2))
    try:
        keys = template_key(template, left), template_key(template, right)
    except UsageError:  # a lone surrogate
        return
    normal = [
        {
            name: exact(unicodedata.normalize("NFC", value) if type(value) is str else value)
            for name, value in side.items()
        }
        for side in (left, right)
    ]
    assert (keys[0] == keys[1]) == (normal[0] == normal[1])
    assert all(len(key) <= 255 and key.isascii() and key.isprintable() for key in keys)


@pytest.mark.parametrize("separator", ["-", "_", ".", ":", "/", " ", "a-b", "::"])
def test_separator_of_the_template_in_a_value_cannot_shift_the_border(separator: str) -> None:
    template = f"{{x}}{separator}{{y}}"
    left = template_key(template, {"x": f"1{separator}2", "y": "3"})
    assert left != template_key(template, {"x": "1", "y": f"2{separator}3"})


def test_flags_without_a_name_and_enums_of_one_name_give_keys_of_their_own() -> None:
    members = [
        *(types.Grant(bits) for bits in range(40)),
        *(types.Scope(bits) for bits in range(40)),
        *(types.Right(bits) for bits in range(4)),
        *(types.Mine.Status.OPEN, types.Yours.Status.OPEN, types.Size.SMALL, types.Rank.FIRST, 1, True),
        *(types.Mood.GOOD, "good"),
    ]
    assert len({template_key("grant:{x}", {"x": one}) for one in members}) == len(members)
    assert template_key("grant:{x}", {"x": types.Right(3)}) == "grant:Right=READ%7CWRITE"
    assert template_key("grant:{x}", {"x": types.Grant(8)}) == "grant:Grant=8"


def test_look_alike_values_give_one_key() -> None:
    assert template_key("a:{x}", {"x": "cafe\u0301"}) == template_key("a:{x}", {"x": "caf\u00e9"})


@pytest.mark.parametrize("texts", [("10", "10.0", "1E+1"), ("0", "-0", "0E-9"), ("1E99", "10E98")])
def test_equal_decimals_give_one_key(texts: tuple[str, ...]) -> None:
    assert len({template_key("a:{x}", {"x": Decimal(text)}) for text in texts}) == 1


def test_decimals_are_told_apart_beyond_the_precision_of_the_context() -> None:
    left, right = Decimal("1." + "1" * 40), Decimal("1." + "1" * 39 + "2")
    with decimal.localcontext(prec=3, capitals=0):
        assert template_key("a:{x}", {"x": left}) != template_key("a:{x}", {"x": right})
        assert template_key("a:{x}", {"x": Decimal("1E99")}) == "a:Decimal=1E99"


def make_member(name: str) -> object:
    class Made(enum.Enum):
        M = 1

    Made.__name__ = name
    return Made.M


def test_separator_in_the_name_of_an_enum_cannot_shift_the_border() -> None:
    one, two, three, four = (make_member(name) for name in ("D", "A_B", "C_D", "B"))
    left = template_key("{x}_{y}_{z}", {"x": "C", "y": one, "z": two})
    right = template_key("{x}_{y}_{z}", {"x": three, "y": "A", "z": four})
    assert left != right


def test_separators_in_values_are_escaped() -> None:
    left = template_key("a:{x}:{y}", {"x": "1:2", "y": "3"})
    right = template_key("a:{x}:{y}", {"x": "1", "y": "2:3"})
    assert (left, right) == ("a:1%3A2:3", "a:1:2%3A3")


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("o-1", "refund:o-1"),
        ("42", "refund:42"),
        (42, "refund:int=42"),
        (True, "refund:bool=True"),
        (Decimal("1.50"), "refund:Decimal=1.5"),
        (Decimal("1E+1"), "refund:Decimal=10"),
        (Decimal("-0.00"), "refund:Decimal=0"),
        (Decimal("-10E+40"), "refund:Decimal=-1E41"),
        (dt.date(2030, 1, 2), "refund:date=2030-01-02"),
        (UUID(int=1), "refund:UUID=00000000-0000-0000-0000-000000000001"),
        (types.Color.RED, "refund:Color=RED"),
        (types.Mood.GOOD, "refund:Mood=GOOD"),
        ("{order_id}", "refund:%7Border_id%7D"),
        ("a\nb\0", "refund:a%0Ab%00"),
    ],
)
def test_value_in_a_key_is_readable_and_escaped(value: object, key: str) -> None:
    assert template_key("refund:{order_id}", {"order_id": value, "cents": 1}) == key


def test_long_keys_are_shortened_to_their_digest() -> None:
    left, right = (template_key("refund:{x}", {"x": "y" * 400 + last}) for last in "ab")
    assert len(left) == len(right) == 255
    assert left != right


@pytest.mark.parametrize(
    "value",
    [
        None,
        1.5,
        [1],
        object(),
        float("nan"),
        Decimal("NaN"),
        b"a",
        types.Order("a", 1),
        "\ud800",
        dt.datetime(2030, 1, 1, tzinfo=dt.UTC),
    ],
)
def test_value_that_is_no_plain_scalar_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="order_id"):
        template_key("refund:{order_id}", {"order_id": value})


class Sly:
    def __init__(self) -> None:
        self.id = "plain"

    @property
    def trap(self) -> str:
        raise AssertionError("code was run")

    def method(self) -> str:
        raise AssertionError("code was run")

    def __getattr__(self, name: str) -> str:
        raise AssertionError("code was run")


@dataclasses.dataclass(slots=True)
class Slotted:
    id: str


@pytest.mark.parametrize(
    "holder",
    [
        types.Order("plain", 1),
        Slotted("plain"),
        types.Ticket.model_validate({"id": 1, "subject": "plain"}),
        {"id": "plain"},
        Sly(),
        types.Message("plain", "b"),
        types.Part("plain"),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_attributes_that_are_data_can_be_named(holder: Any) -> None:
    name = {"Ticket": "subject", "Message": "role", "Part": "name"}.get(type(holder).__name__, "id")
    assert template_key(f"a:{{order.{name}}}", {"order": holder}) == "a:plain"
    assert template_key(f"a:{{o.order.{name}}}", {"o": {"order": holder}}) == "a:plain"


@pytest.mark.parametrize("name", ["trap", "method", "absent", "real"])
def test_properties_and_methods_are_never_called(name: str) -> None:
    for holder in (Sly(), 5):
        with pytest.raises(UsageError, match="no data attribute"):
            template_key(f"a:{{order.{name}}}", {"order": holder})


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("refund:{nope}", "{order_id}, {cents}"),
        ("refund", "no placeholder"),
        ("", "no placeholder"),
        ("refund:{}", "more than names"),
        ("refund:{0}", "more than names"),
        ("refund:{order_id", "cannot be read"),
        ("refund:{order_id!r}", "more than names"),
        ("refund:{order_id:>10}", "more than names"),
        ("refund:{order_id:{cents}}", "more than names"),
        ("refund:{order_id[0]}", "more than names"),
        ("refund:{order_id.__class__}", "more than names"),
        ("refund:{order_id._private}", "more than names"),
        ("refund:{order_id}{cents}", "separate"),
        ("refund:{order_id}x{cents}", "separate"),
        ("refund:{order_id}={cents}", "separate"),
        ("k{order_id}:~{cents}", "shortened"),
        ("~{order_id}", "shortened"),
        ("{order_id}:a~", "shortened"),
        ("refund\n{order_id}", "printable"),
        ("é{order_id}", "printable"),
    ],
)
def test_bad_template_is_refused_at_registration(template: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        key_template(template, ["order_id", "cents"])


def test_good_template_passes() -> None:
    key_template("refund:{order_id}/{cents.amount}", ["order_id", "cents"])
    assert template_key("a{{b}}:{x}", {"x": "1"}) == "a{b}:1"
