"""Cached answers: the name under which an answer is found, what is kept of it, and when it may be used.

An answer is found by one name: a digest of the step, the cache's version, the labels of its scope, and the
arguments (`near="exact"`) or their normal form ("words"). So two questions share an answer only if all of
that is equal, and a lookup is one read. What is found is used only if it says of itself what its name says,
its digest fits its value, and it has not expired: else it is a miss, never an error.

Arguments count with their defaults, unlike in a fingerprint: a new default is another question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct

from ninelives.core.errors import BadName, UsageError
from ninelives.core.governance.taint import check_labels
from ninelives.core.ids import check_id
from ninelives.core.model_calls.declarations import EXACT, WORDS
from ninelives.core.model_calls.normal_form import normal_tree
from ninelives.core.secret import masked_text
from ninelives.core.values.scalars import SECRET_TAG, TAG
from ninelives.core.values.token_usage import Usage

if TYPE_CHECKING:
    from ninelives.core.model_calls.meaning.choice import MeaningChoice

PREFIX: Final = "cache/"
"""What the names of all documents of caches begin with."""
ANSWERS: Final = "/answers/"
NOTES: Final = "/meaning/"
"""What the names of notes on questions that mean the same have inside; their last part is one note's."""
ANSWER_CHARACTERS: Final = 40
SHORT: Final = 12
"""So many characters of an answer's name are shown to people, and are its label."""
AHEAD_MS: Final = 3_600_000
"""An answer from further in the future was written by a wrong clock, and would never expire: a miss."""
_STEP_CHARACTERS: Final = 150
_PREVIEW_CHARACTERS: Final = 160
_ENCODE = msgspec.json.Encoder(order="deterministic").encode


class NearQuestion(Struct, frozen=True):
    """A question's text and vector, in which cache (the prefix of its notes), and what was chosen for it."""

    prefix: str
    text: str
    vector: Sequence[float]
    choice: MeaningChoice


class CacheQuestion(Struct, frozen=True):
    """What a call asks: the name of its answer, a digest of exactly these arguments, and their beginning.

    `replaces`: the answer that is kept does not fit what the step returns now: another takes its place.
    `beside` is the question beside those that mean the same, if the cache compares by meaning.
    """

    answer: str
    exact: str
    preview: str
    scope: dict[str, str]
    replaces: bool = False
    beside: NearQuestion | None = None


class CachedAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer that later calls may reuse: the body of its document.

    `answer` is the name that it has, `digest` that of everything else. `question` is the digest of its
    arguments, `preview` their beginning, for people. `run`, `at` and `at_ms` are the step that
    recorded it. `by` is the way that gave it, `usage` what it cost, `taint` where the data came from that it
    read.
    """

    step: str
    answer: str
    question: str
    value: Raw
    digest: str
    run: str
    at: str
    at_ms: int
    ttl_ms: int
    preview: str = ""
    near: str = EXACT
    version: str = ""
    scope: dict[str, str] = {}
    by: str = ""
    usage: Usage | None = None
    taint: tuple[str, ...] = ()


def make_question(
    step: str, near: str, version: str, scope: Mapping[str, str], arguments: bytes, secret: bytes = b""
) -> CacheQuestion | None:
    """Return what a call asks; None if it holds a secret, of which only the name is known here.

    `arguments` are canonical, with defaults. With `secret`, names say nothing to others: an encrypted store
    has one.
    """
    tree = msgspec.json.decode(arguments)
    if _holds_secret(tree):
        return None
    counted = normal_tree(tree) if near == WORDS else tree
    named = _ENCODE([step, near, version, dict(scope), counted])
    return CacheQuestion(
        answer=blake2b(named, digest_size=ANSWER_CHARACTERS // 2, key=secret).hexdigest(),
        exact=blake2b(arguments, digest_size=16, key=secret).hexdigest(),
        preview=_preview(arguments),
        scope=dict(scope),
    )


def _holds_secret(tree: object) -> bool:
    if type(tree) is list:
        return any(map(_holds_secret, tree))
    if type(tree) is not dict:
        return False
    return tree.get(TAG) == SECRET_TAG or any(map(_holds_secret, tree.values()))


def holds_secret(value: bytes) -> bool:
    """Return whether an encoded value has a secret inside."""
    return SECRET_TAG.encode() in value and _holds_secret(msgspec.json.decode(value))


def _preview(arguments: bytes) -> str:
    text = masked_text(arguments.decode())
    return text if len(text) <= _PREVIEW_CHARACTERS else f"{text[:_PREVIEW_CHARACTERS]}…"


def name_of(step: str, answer: str) -> str:
    """Return the name of an answer's document."""
    return f"{prefix_of(step)}{ANSWERS[1:]}{answer}"


def prefix_of(step: str) -> str:
    """Return what the names of a step's documents begin with; a long step's name is cut, and made unique."""
    if len(step) > _STEP_CHARACTERS:
        step = f"{step[:_STEP_CHARACTERS]}~{blake2b(step.encode(), digest_size=8).hexdigest()}"
    return f"{PREFIX}{step}/"


def step_in(name: str) -> str:
    """Return of which step a document of a cache is, by its name."""
    return name.removeprefix(PREFIX).partition(ANSWERS)[0].partition(NOTES)[0]


def notes_of(step: str, what: Sequence[object], secret: bytes) -> str:
    """Return the prefix of the notes of one cache: what its questions share (`what`) makes its name."""
    return f"{prefix_of(step)}{NOTES[1:]}{blake2b(_ENCODE(what), digest_size=12, key=secret).hexdigest()}"


def scope_of(wanted: tuple[str, ...], labels: Mapping[str, str]) -> dict[str, str] | None:
    """Return the labels of a run that scope its answers; None if it lacks one: then nothing is cached."""
    return {name: labels[name] for name in wanted} if all(name in labels for name in wanted) else None


def sealed(answer: CachedAnswer) -> CachedAnswer:
    """Return an answer with its digest."""
    return msgspec.structs.replace(answer, digest=_digest(answer))


def _digest(answer: CachedAnswer) -> str:
    rest = msgspec.structs.replace(answer, digest="", value=Raw(b"0"))
    return blake2b(_ENCODE(rest) + b"\n" + bytes(answer.value), digest_size=16).hexdigest()


def read(body: bytes) -> CachedAnswer | None:
    """Return an answer from its document; None if it was not written like that, or is damaged."""
    try:
        found = msgspec.json.decode(body, type=CachedAnswer)
        check_id(found.run, "run id")
        check_labels(found.taint, "taint")
    except (msgspec.DecodeError, BadName, UsageError, RecursionError):
        return None
    if found.usage is not None and not found.usage.is_countable:
        return None  # sums of it would be refused by the store, with all that is counted beside it
    return found if found.digest == _digest(found) else None


def is_over(answer: CachedAnswer, ttl_ms: int, now_ms: int) -> bool:
    """Return whether an answer has expired, by what was declared then or what is declared now."""
    age_ms = now_ms - answer.at_ms
    return age_ms >= min(ttl_ms, answer.ttl_ms) or age_ms < -AHEAD_MS


def kind_of_hit(answer: CachedAnswer, question: CacheQuestion) -> str:
    """Return how a question was found that has this answer's name: word for word, or in its normal form."""
    return EXACT if answer.question == question.exact else WORDS


def fits(answer: CachedAnswer, step: str, question: CacheQuestion) -> bool:
    """Return whether an answer was kept under this name: it was not moved here."""
    return answer.step == step and answer.answer == question.answer and answer.scope == question.scope
