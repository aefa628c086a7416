"""What a secret shows, in every way in which Python turns a value into text, and what its errors say."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pydantic
import pytest

import ninelives as nl
from ninelives.core.secret import KEPT, masked, masked_text
from ninelives.core.values.codec import codec_for
from ninelives.core.values.exceptions import decode_error, encode_error
from ninelives.core.values.fingerprint import taker, whole
from ninelives.engine.spec.registry import signature_of
from ninelives.logs.formats import JsonFormatter, TextFormatter

CANARY = 'sk-live-"9c1f/ü\\7b"'
SECRET = nl.Secret(CANARY, name="STRIPE_KEY")
CODED = 'canary/7+q=ü "x'
"""A text that programs write into URLs and errors in many ways."""


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr


@dataclass
class Card:
    number: nl.Secret[str]
    tries: list[nl.Secret[str]] = field(default_factory=list)


def test_every_text_of_a_secret_is_its_mask() -> None:
    texts = [
        repr(SECRET),
        str(SECRET),
        f"{SECRET}",
        f"{SECRET!r}",
        f"{SECRET:>30}",
        f"{SECRET} {SECRET!r}",
    ]
    texts += [repr([SECRET]), repr({"a": SECRET}), repr(Card(SECRET)), json.dumps([SECRET], default=str)]
    assert not [text for text in texts if "9c1f" in text]
    assert str(SECRET) == "*** (STRIPE_KEY)"
    assert str(nl.Secret("x")) == "***"


def test_a_secret_is_neither_pickled_nor_encoded_and_a_copy_is_the_same() -> None:
    for encode in (pickle.dumps, json.dumps, msgspec.json.encode, msgspec.msgpack.encode, vars):
        with pytest.raises(TypeError) as refused:
            encode(SECRET)
        assert "9c1f" not in str(refused.value)
    assert copy.copy(SECRET) is copy.deepcopy(SECRET) is SECRET
    assert copy.deepcopy(Card(SECRET)).number.reveal() == CANARY


def test_a_secret_is_a_value_that_does_not_change() -> None:
    assert SECRET == nl.Secret(CANARY, name="STRIPE_KEY") != nl.Secret(CANARY)
    assert nl.Secret(b"1") != nl.Secret("1")
    assert len({SECRET, nl.Secret(CANARY, name="STRIPE_KEY")}) == 1
    assert not nl.Secret("")
    with pytest.raises(AttributeError):
        SECRET.name = "other"
    with pytest.raises(nl.UsageError, match="holds str or bytes"):
        nl.Secret(5)  # type: ignore[type-var]


def call(token: Any, amount: int = 1) -> None:
    """Provide a signature."""


def test_a_fingerprint_has_the_name_of_a_secret_and_nothing_of_its_value() -> None:
    take = taker(signature_of(call))
    for value in (SECRET, Card(SECRET), Login(user="ann", password=pydantic.SecretStr(CANARY)), [SECRET]):
        taken = take((value,), {})
        assert b"9c1f" not in taken.arguments
        assert "9c1f" not in str(taken.preview())
        assert b"9c1f" not in whole(signature_of(call), (value,), {}, ignore=())
    rotated, other = nl.Secret("new", name="STRIPE_KEY"), nl.Secret(CANARY, name="OTHER")
    assert take((SECRET,), {}).digest == take((rotated,), {}).digest
    assert take((SECRET,), {}).digest != take((other,), {}).digest
    assert take((SECRET,), {}).digest != take(("*** (STRIPE_KEY)",), {}).digest


VALUES: list[tuple[Any, Any, str]] = [
    (nl.Secret[str], SECRET, "$"),
    (Any, {"deep": [1, SECRET]}, "$.deep[1]"),
    (Card, Card(nl.Secret("1"), [SECRET]), "$.number"),
    (list[nl.Secret[str] | None], [None, SECRET], "$[1]"),
    (Login, Login(user="ann", password=pydantic.SecretStr(CANARY)), "$.password"),
    (pydantic.SecretStr, pydantic.SecretStr(CANARY), "$"),
    (pydantic.SecretBytes, pydantic.SecretBytes(CANARY.encode()), "$"),
    (nl.Secret[bytes], nl.Secret(b"\xff\x00"), "$"),
]


@pytest.mark.parametrize(("annotation", "value", "path"), VALUES, ids=lambda one: str(one)[:30])
def test_without_encryption_a_secret_is_refused_with_its_path_and_the_remedy(
    annotation: Any, value: Any, path: str
) -> None:
    with pytest.raises(nl.NotSerializable) as refused:
        codec_for(annotation).round(value)
    assert refused.value.path == path
    assert "read the secret from the environment" in str(refused.value)
    assert "9c1f" not in str(refused.value)


@pytest.mark.parametrize(("annotation", "value", "path"), VALUES, ids=lambda one: str(one)[:30])
def test_with_encryption_a_secret_comes_back(annotation: Any, value: Any, path: str) -> None:
    token = KEPT.set(True)
    try:
        data, decoded = codec_for(annotation).round(value)
    finally:
        KEPT.reset(token)
    assert decoded == value == codec_for(annotation).recall(data)
    # Another annotation meets the stored secret: its error does not repeat it.
    for other in (int, str, list[str], dict[str, int]):
        with pytest.raises(nl.NineLivesError) as refused:
            codec_for(other).decode(data)
        assert "9c1f" not in str(refused.value)
        assert "9c1f" not in repr(refused.value.__cause__)


class Strict(Login):
    @pydantic.model_validator(mode="after")
    def _refuse(self) -> Strict:
        if self.user == "gone":
            raise ValueError("gone")
        return self


def test_a_model_that_refuses_its_record_does_not_repeat_the_secret_in_it() -> None:
    token = KEPT.set(True)
    try:
        data = codec_for(Login).encode(Login(user="gone", password=pydantic.SecretStr(CANARY)))
    finally:
        KEPT.reset(token)
    with pytest.raises(nl.Divergence) as refused:
        codec_for(Strict).decode(data)
    seen: BaseException | None = refused.value
    while seen is not None:
        assert "9c1f" not in str(seen)
        seen = seen.__cause__


class Refused(Exception):
    def __init__(self, token: object) -> None:
        super().__init__(token, {"deep": [token]})
        self.token, self.text = token, f"with {CANARY}"


def test_an_error_is_recorded_without_secrets_and_without_what_was_revealed() -> None:
    plain = SECRET.reveal()
    errors = [
        ValueError(SECRET),
        ValueError(f"401 for https://api/?key={plain}"),
        KeyError(plain),
        OSError(13, "no", f"/{plain}"),
        UnicodeDecodeError("utf-8", plain.encode(), 0, 1, "bad"),
        Refused(SECRET),
        Refused(pydantic.SecretStr(plain)),
        ExceptionGroup("two", [ValueError(plain)]),
    ]
    errors[0].add_note(f"sent {plain}")
    for error in errors:
        data = encode_error(error, raises=(Refused,))
        assert b"9c1f" not in data, data
        again = decode_error(data, raises=(Refused,))
        assert "9c1f" not in str(again)
        assert type(again) is type(error) or isinstance(error, ExceptionGroup)


def _fail(text: str) -> None:
    raise RuntimeError(f"bad {text}")


def test_log_lines_mask_what_was_revealed_wherever_it_stands() -> None:
    plain = SECRET.reveal()
    with pytest.raises(RuntimeError) as raised:
        _fail(plain)
    info = (RuntimeError, raised.value, raised.tb)
    record = logging.LogRecord("x", 40, "f", 1, "sent %s and %s", (plain, SECRET), info)
    record.token, record.held = plain, {"k": [plain, SECRET]}
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(record)
        assert "9c1f" not in line
        assert "sent *** and *** (STRIPE_KEY)" in line


@pytest.mark.parametrize(
    "coded",
    [
        quote(CODED),
        quote(CODED, safe=""),
        quote(CODED, safe="")
        .replace("2F", "2f")
        .replace("2B", "2b")
        .replace("3D", "3d")
        .replace("C3%BC", "c3%bc"),
        quote_plus(CODED),
        quote(CODED, safe="!$&'()*+,;=:/?@[]"),
        json.dumps(CODED),
        json.dumps(CODED, ensure_ascii=False),
        ascii(CODED),
        repr(CODED),
        repr(CODED.encode()),
    ],
)
def test_a_text_that_was_revealed_is_masked_as_programs_write_it(coded: str) -> None:
    assert nl.Secret(CODED, name="CODED").reveal() == CODED
    assert "canary" not in masked_text(f"GET https://x.example/?key={coded}&page=1 failed")


def test_short_plain_texts_are_not_searched_for() -> None:
    assert nl.Secret("1234").reveal() == "1234"
    assert masked_text("it took 1234 ms") == "it took 1234 ms"
    assert masked({"pin": nl.Secret("1234")}) == {"pin": "***"}
