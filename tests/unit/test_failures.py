"""A recorded error comes back with its type and its text, or is StepFailed from the start."""

import asyncio
import builtins
import contextlib
from typing import Any, Self

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninelives.core import errors
from ninelives.core.errors import Corrupt, Divergence, StepFailed, UsageError
from ninelives.core.values.exceptions import (
    check_raises,
    decode_error,
    encode_error,
    read_failure,
    same_error,
)
from ninelives.core.values.retry import Reason


class Declined(Exception):
    def __init__(self, order: str, code: int) -> None:
        super().__init__(f"order {order} declined")
        self.order, self.code, self.client = order, code, object()


class Talkative(Exception):
    def __str__(self) -> str:
        return f"told {id(self)}"


class Speechless(ValueError):
    def __str__(self) -> str:
        raise RuntimeError


class Sub(ValueError): ...


class Stubborn(Exception):
    def __new__(cls, *args: object) -> Self:
        if not args:
            raise LookupError
        return super().__new__(cls, *args)


BUILTIN: list[Exception] = [
    ValueError("bad"),
    ValueError(),
    KeyError("missing"),
    IndexError(3),
    FileNotFoundError(2, "No such file", "/x"),
    OSError("plain"),
    ConnectionRefusedError(111, "refused"),
    TimeoutError("late"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad byte"),
    ZeroDivisionError("division by zero"),
    RuntimeError("a", 2, ("b",)),
    ImportError("no module", name="x"),
    SyntaxError("bad", ("f.py", 1, 2, "text", 1, 3)),
]
OURS: list[Exception] = [
    errors.NotSerializable("no", path="$.a", remedy="Fix it"),
    errors.Denied("a person said no", run="r", step="s"),
    errors.TimedOut("late", run="r"),
    errors.StepFailed("X: y"),
    errors.Transient("busy", retry_after_seconds=3.5),
    errors.Permanent("never"),
    errors.NotDone("card declined"),
]


@pytest.mark.parametrize("exc", BUILTIN + OURS, ids=lambda exc: type(exc).__name__)
def test_known_error_comes_back_with_type_text_and_attributes(exc: Exception) -> None:
    exc.add_note("seen at noon")
    back = decode_error(encode_error(exc))
    assert type(back) is type(exc)
    assert str(back) == str(exc)
    assert vars(back) == vars(exc)
    assert str(same_error(exc)) == str(exc)


class Slotted(Exception):
    __slots__ = ("__hidden", "code")

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code, self.__hidden = code, "x"

    def hidden(self) -> str:
        return self.__hidden


class Away(ConnectionError):
    """A subclass of OSError as it is."""


class Refused(OSError):
    def __init__(self, host: str, number: int) -> None:
        super().__init__(number, f"{host} refused", f"/{host}")
        self.host = host


def test_attributes_outside_of_the_dict_of_an_error_come_back() -> None:
    slotted = same_error(Slotted(7), (Slotted,))
    assert isinstance(slotted, Slotted)
    assert (slotted.code, slotted.hidden()) == (7, "x")
    away = same_error(Away(111, "away", "/socket"), (Away,))
    assert isinstance(away, Away)
    assert (away.errno, away.strerror, away.filename) == (111, "away", "/socket")
    refused = same_error(Refused("a", 13), (Refused,))
    assert isinstance(refused, Refused)
    assert (refused.errno, refused.filename, refused.host) == (13, "/a", "a")
    assert str(refused) == str(Refused("a", 13))
    missing = same_error(ImportError("no module", name="x", path="/y"))
    assert isinstance(missing, ImportError)
    assert (missing.name, missing.path) == ("x", "/y")
    unknown = same_error(AttributeError("no", name="y"))
    assert isinstance(unknown, AttributeError)
    assert unknown.name == "y"


def test_error_in_raises_comes_back_without_calling_its_init() -> None:
    back = same_error(Declined("o-1", 51), (Declined,))
    assert type(back) is Declined
    assert str(back) == "order o-1 declined"
    assert (back.order, back.code) == ("o-1", 51)
    assert not hasattr(back, "client"), "what is not plain is left out, on the first execution too"


@pytest.mark.parametrize(
    "exc", [Declined("o", 1), Sub("x"), asyncio.CancelledError("c"), KeyboardInterrupt()]
)
def test_other_errors_are_step_failed_on_first_execution_too(exc: BaseException) -> None:
    first, replayed = same_error(exc), decode_error(encode_error(exc))
    assert type(first) is type(replayed) is StepFailed
    assert str(first) == str(replayed)
    assert str(first).startswith(f"{type(exc).__name__}: {exc}")
    assert "raises=" in str(first)


@pytest.mark.parametrize(
    "exc",
    [Talkative(), ExceptionGroup("g", [ValueError()]), StopIteration(1), Speechless("x"), KeyError(object())],
    ids=lambda exc: type(exc).__name__,
)
def test_error_that_cannot_be_rebuilt_equal_is_step_failed(exc: Exception) -> None:
    assert type(same_error(exc, (Talkative, Speechless))) is StepFailed


def test_error_whose_construction_fails_is_step_failed() -> None:
    assert type(same_error(Stubborn("a"), (Stubborn,))) is Stubborn
    stripped = Stubborn("a")
    stripped.args = ()
    assert (
        type(same_error(stripped, (Stubborn,))) is StepFailed or str(same_error(stripped, (Stubborn,))) == ""
    )


def test_arguments_that_are_not_plain_become_the_text() -> None:
    back = same_error(ValueError(types := [object], "x"))
    assert type(back) is ValueError
    assert str(back) == str(ValueError(types, "x"))


@pytest.mark.parametrize("text", ["nul \0", "surrogate \ud800", "x" * 1_000_000])
def test_text_that_cannot_be_stored_is_cleaned_the_same_way_each_time(text: str) -> None:
    first = same_error(ValueError(text))
    assert type(first) is ValueError
    assert str(same_error(first)) == str(first)
    assert len(str(first)) < 20_000


def test_reason_is_recorded() -> None:
    assert read_failure(encode_error(TimeoutError())).reason is Reason.TIMEOUT
    assert read_failure(encode_error(Declined("a", 1))).reason is Reason.PERMANENT
    assert read_failure(encode_error(MemoryError())).reason is Reason.POISON


def test_class_that_left_raises_is_a_divergence() -> None:
    data = encode_error(Declined("o", 1), raises=(Declined,))
    with pytest.raises(Divergence, match="Declined"):
        decode_error(data)


def test_user_class_with_a_builtin_name_is_not_taken_for_it() -> None:
    fake: Any = type("ValueError", (Exception,), {})
    assert type(same_error(fake("x"))) is StepFailed
    assert type(same_error(fake("x"), (fake,))) is fake


def test_every_builtin_exception_class_survives() -> None:
    for kind in vars(builtins).values():
        if isinstance(kind, type) and issubclass(kind, Exception) and kind is not ExceptionGroup:
            try:
                exc = kind("x")
            except TypeError:
                continue
            assert str(decode_error(encode_error(exc))) == str(same_error(exc))


def record(**changes: object) -> bytes:
    fields = {"name": "ValueError", "message": "m", "reason": "permanent", "home": "builtin", "args": "[]"}
    return msgspec.json.encode({**fields, "attributes": "{}", **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"home": "import"},
        {"args": "{}"},
        {"args": "[" * 5000},
        {"attributes": "[]"},
        {"attributes": '{"__class__":"os.system"}'},
        {"attributes": '{"__reduce__":["os.system"]}'},
        {"more": 1},
        {"name": "UnicodeDecodeError"},
        {"name": "Denied", "home": "ours"},
        {"reason": "other"},
    ],
    ids=str,
)
def test_damaged_record_is_corrupt(changes: dict[str, object]) -> None:
    with pytest.raises(Corrupt):
        decode_error(record(**changes))


@pytest.mark.parametrize("name", ["os.system", "eval", "print", "KeyboardInterrupt", "object", "__import__"])
def test_name_outside_the_closed_set_is_never_looked_up(name: str) -> None:
    for home in ("builtin", "ours", "raises"):
        with pytest.raises(Divergence):
            decode_error(record(name=name, home=home), raises=(Declined,))


@given(st.binary(max_size=80))
def test_any_bytes_give_an_error_or_corrupt(data: bytes) -> None:
    with contextlib.suppress(Corrupt):
        assert isinstance(decode_error(data), BaseException)


@given(st.lists(st.text() | st.integers() | st.floats(), max_size=3))
def test_any_value_error_comes_back_the_same_twice(args: list[object]) -> None:
    first = same_error(ValueError(*args))
    again = decode_error(encode_error(ValueError(*args)))
    assert (type(first), str(first)) == (type(again), str(again))


@pytest.mark.parametrize(
    ("exc", "remedy"),
    [
        (SystemExit(2), "It is no Exception"),
        (KeyboardInterrupt(), "It is no Exception"),
        (Sub("x"), "List its class in raises="),
    ],
)
def test_the_remedy_of_a_step_failed_can_be_followed(exc: BaseException, remedy: str) -> None:
    told = same_error(exc)
    assert isinstance(told, StepFailed)
    assert (told.remedy or "").startswith(remedy)


def test_raises_is_checked_at_registration() -> None:
    assert check_raises(Declined) == (Declined,)
    assert check_raises([Declined, Sub]) == (Declined, Sub)
    twin = type("Sub", (Exception,), {})
    for bad in ((int,), "ValueError", (Sub, twin), (KeyboardInterrupt,)):
        with pytest.raises(UsageError, match="raises="):
            check_raises(bad)
