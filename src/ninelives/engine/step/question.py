"""`nl.ask`: a question that a person answers through the inbox; the run may park until then.

The answer is checked when it is given, against the schema in the item. The declared type makes the final
check here; if it refuses the answer, the question is asked again. One commit takes the answer and records the
result, so an answer counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, TypeVar, overload

from msgspec import UNSET, Raw

from ninelives.core.errors import Corrupt, Divergence, NotSerializable, TimedOut, UsageError
from ninelives.core.ids import check_id
from ninelives.core.journal.answers import Answer, ItemBody, Says, read_answer, write_default, write_taken
from ninelives.core.journal.replay import write_body
from ninelives.core.model.inbox import Item, ItemKind
from ninelives.core.model.run import Kind
from ninelives.core.values.codec import Codec, codec_for
from ninelives.core.values.exceptions import encode_error
from ninelives.core.values.fingerprint import Fingerprint, taker
from ninelives.core.values.json_schema import schema_for
from ninelives.core.values.scalars import SecretShape
from ninelives.engine.commit.ticket import Draft, Extras
from ninelives.engine.run.current import require_agent
from ninelives.engine.run.waits import check_seconds
from ninelives.engine.spec.registry import signature_of
from ninelives.engine.step import inbox_request
from ninelives.engine.step.envelope import Builtin
from ninelives.engine.step.inbox_request import InboxRequest, Late
from ninelives.engine.step.other_loops import at_home

T = TypeVar("T")
_MOST_CHARACTERS = 10_000


def _parameters(question: str, options: list[Any] | None = None) -> None:
    """Provide a signature, so that the question and its options have a fingerprint."""


_FINGERPRINT = taker(signature_of(_parameters))


@overload
async def ask(
    question: str,
    *,
    to: str | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
    default: str = ...,
) -> str: ...
@overload
async def ask(
    question: str,
    options: None = None,
    *,
    type: type[T],
    to: str | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
    default: T = ...,
) -> T: ...
@overload
async def ask(
    question: str,
    options: Sequence[T],
    *,
    type: Any = ...,
    to: str | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
    default: T = ...,
) -> T: ...
@overload
async def ask(
    question: str,
    options: None = None,
    *,
    type: Any = ...,
    to: str | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
    default: Any = ...,
) -> Any: ...
@at_home
async def ask(
    question: str,
    options: Sequence[Any] | None = None,
    *,
    type: Any = UNSET,
    to: str | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
    default: Any = UNSET,
) -> Any:
    """Ask a person and return the answer: one of the options, or a value of `type` (default: text).

    `to` names the person to ask. After `timeout` seconds, `default` is the answer.
    Raises TimedOut if there is no default; UsageError or NotSerializable for an invalid question.
    """
    execution = require_agent("nl.ask()", "Ask first, pass the answer on")
    annotation = type if type is not UNSET else str if options is None else Any
    codec = codec_for(annotation, where="nl.ask(type=)")
    codec.require_keeping(f"the answer to nl.ask({question!r})", execution.run.id)
    if codec.secrets and not isinstance(codec.shape, SecretShape):
        raise UsageError(
            "nl.ask(type=) has a secret inside",
            run=execution.run.id,
            remedy="Ask for the secret alone: type=nl.Secret[str]",
        )
    make_request = _request(question, options, codec, to, timeout, default)
    fingerprint = _FINGERPRINT((question, None if options is None else list(options)), {})
    async with Builtin(execution, "ask") as step:
        found = await step.recorded(codec, fingerprint=fingerprint)
        if found is not None:
            return found.value
        return await _answer(step, make_request(step.id), codec, fingerprint)


def _request(
    question: Any,
    options: Sequence[Any] | None,
    codec: Codec,
    to: str | None,
    seconds: float | None,
    default: Any,
) -> Any:
    """Check the question before anything is recorded; return a function that makes its InboxRequest."""
    if not isinstance(question, str) or not question.strip() or len(question) > _MOST_CHARACTERS:
        raise UsageError(
            "nl.ask(): the question is not a text",
            remedy=f"Ask something, in up to {_MOST_CHARACTERS} characters",
        )
    if options is not None and (isinstance(options, str) or not list(options)):
        raise UsageError(f"nl.ask(options={options!r})", remedy="Give a list of one or more")
    if seconds is not None:
        check_seconds(seconds, "nl.ask(timeout=)")
    elif default is not UNSET:
        raise UsageError(
            "nl.ask(default=) without timeout=",
            remedy="Give timeout=: the seconds after which the default is the answer",
        )
    choices = tuple(_encoded(codec, one, f"options[{at}]") for at, one in enumerate(options or ()))
    fallback = _encoded(codec, default, "default") if default is not UNSET else UNSET
    if choices and fallback is not UNSET and bytes(fallback) not in [bytes(one) for one in choices]:
        raise UsageError(f"nl.ask(default={default!r}) is none of the options", remedy="Give one of them")
    request = ItemBody(what=question, options=choices, schema=schema_for(codec), default=fallback)
    parts = [question, *(bytes(one).decode() for one in choices), str(request.schema)]
    digest = blake2b("\0".join(parts).encode(), digest_size=16).digest()
    who = check_id(to, "name of the person to ask") if to else ""

    def made(step: str) -> InboxRequest:
        return InboxRequest(
            step=step, kind=ItemKind.QUESTION, body=request, digest=digest, to=who, seconds=seconds
        )

    return made


def _encoded(codec: Codec, value: Any, what: str) -> Raw:
    try:
        return Raw(codec.encode(value))
    except NotSerializable as error:
        error.path = f"nl.ask({what}){(error.path or '$')[1:]}"
        raise


async def _answer(step: Builtin, request: InboxRequest, codec: Codec, fingerprint: Fingerprint) -> Any:
    def misfit(item: Item) -> str | None:
        try:
            codec.decode(_value(item))
        except (Divergence, Corrupt) as error:
            return f"the answer of {item.by} does not fit: {error.what}"
        return None

    while True:
        found = await inbox_request.ask(step.execution, request, misfit)
        outcome = await _settle(step, found, request, codec, fingerprint)
        if outcome is not None:
            return outcome[0]


async def _settle(
    step: Builtin, found: Item | Late, request: InboxRequest, codec: Codec, fingerprint: Fingerprint
) -> tuple[Any] | None:
    """Record the answer, or its absence; return None if one came at this moment and must be read."""
    error: TimedOut | None = None
    drafts: list[Draft]
    if isinstance(found, Item):
        data = _value(found)
        # A person's client may send keys that no field claims:
        # without them, replay reads the record as strictly as any.
        data = codec.received(codec.recall(data, is_whole=False)) or data
        # CRASH: answered and not taken: the next worker finds the answer.
        drafts = [(Kind.ANSWER, step.id, write_taken(found))]
        drafts.append((Kind.RESULT, step.id, write_body(fingerprint, value=data)))
        is_settled = await step.settle(drafts)
    else:
        data = b"null"
        if request.body.default is not UNSET:
            data = bytes(request.body.default)
            answer = Answer(Says.VALUE, request.body.default, "no answer came in time")
            now_ms = step.execution.store.now_ms()
            drafts = [(Kind.ANSWER, step.id, write_default(found.item, request.kind, now_ms, answer))]
            drafts.append((Kind.RESULT, step.id, write_body(fingerprint, value=data)))
        else:
            error = TimedOut("no answer came in time", run=step.execution.run.id, step=step.id)
            drafts = [(Kind.FAILURE, step.id, write_body(fingerprint, error=encode_error(error)))]
        is_settled = await step.settle(drafts, Extras(closes=(found.item,)))
    if not is_settled:
        return None
    if error is not None:
        raise error
    return (codec.recall(data),)


def _value(item: Item) -> bytes:
    answer = read_answer(item)
    return bytes(answer.value) if answer.says is Says.VALUE and answer.value is not UNSET else b"null"
