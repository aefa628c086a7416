"""The observer that makes the spans: of a run, of each life, of each attempt of a step."""

from __future__ import annotations

import logging
import threading
from typing import Any

from msgspec import Struct
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, Status, StatusCode

from ninelives.core.errors import NineLivesError
from ninelives.core.journal.replay import paid_tokens
from ninelives.core.model.run import State
from ninelives.core.secret import masked_text
from ninelives.core.values.token_usage import usage_in
from ninelives.engine import hooks
from ninelives.ops.traces import names, span_ids
from ninelives.ops.traces.dead_lives import dead_lives

LOGGER = logging.getLogger("ninelives")
_MS = 1_000_000


class _TracedLife(Struct):
    root: Span
    span: Span
    token: Any
    outcome: str = "left"
    steps: int = 0
    decisions: int = 0
    tokens: int = 0


class SpanObserver(hooks.Observer):
    """Makes spans of what the engine does."""

    def __init__(self, provider: trace.TracerProvider | None, *, content: bool) -> None:
        self._provider, self._content = provider, content
        self._made: tuple[Any, span_ids.ChosenIds | None] | None = None
        self._lives: dict[tuple[str, int], _TracedLife] = {}
        self._bodies: dict[tuple[str, int, int, str, int], tuple[Span, Any]] = {}

    # Spans with chosen ids ----------------------------------------------------------------------

    def _tracer(self) -> tuple[Any, span_ids.ChosenIds | None]:
        """Return the tracer; made at the first life, since code may set the provider after `enable`."""
        if self._made is None:
            tracer: Any = trace.get_tracer("ninelives", tracer_provider=self._provider)
            known, ids = getattr(tracer, "id_generator", None), None
            if known is not None:
                ids = known if isinstance(known, span_ids.ChosenIds) else span_ids.ChosenIds(known)
                tracer.id_generator = ids
            self._made = tracer, ids
        return self._made

    def _start(self, ids: tuple[int, int], name: str, parent: Span | None, **known: Any) -> Span:
        tracer, chosen = self._tracer()
        context = trace.set_span_in_context(parent, Context()) if parent is not None else Context()
        if chosen is None:
            span: Span = tracer.start_span(name, context, **known)
        else:
            with chosen.next(*ids):
                span = tracer.start_span(name, context, **known)
        return span

    # Lives --------------------------------------------------------------------------------------

    def life_began(self, event: hooks.LifeBegan) -> None:
        """Begin the span of a life; have the spans of dead ones written."""
        row, store = event.row, event.store.identity or event.store.url
        ids, known = span_ids.trace_of(store, row.id), {names.RUN: row.id, names.AGENT: row.agent}
        links = []
        if row.parent is not None:
            known[names.PARENT] = row.parent
            links.append(Link(span_ids.root_of(store, row.parent)))
        outer = trace.get_current_span().get_span_context()
        caller = [Link(outer)] if outer.is_valid and outer.trace_id != ids[0] else []
        # Begun in every life, ended only where the run ends: so the user's sampler decides for the whole.
        root: Span = NonRecordingSpan(span_ids.root_of(store, row.id))
        if self._tracer()[1] is not None:
            root = self._start(
                ids,
                f"{names.INVOKE_WORKFLOW} {row.agent}",
                None,
                attributes={**known, names.OPERATION: names.INVOKE_WORKFLOW},
                links=links,
                start_time=row.created_ms * _MS,
            )
        of_life = {**known, names.OPERATION: names.INVOKE_AGENT}

        def life(epoch: int, linked: list[Link], start_time: int | None = None) -> Span:
            return self._start(
                (ids[0], span_ids.life_of(store, row.id, epoch)),
                f"{names.INVOKE_AGENT} {row.agent}",
                root,
                attributes={**of_life, names.EPOCH: epoch},
                links=linked,
                start_time=start_time,
            )

        span = life(row.epoch, links + caller)
        token = contexts.attach(trace.set_span_in_context(span))
        self._lives[row.id, row.epoch] = _TracedLife(root, span, token)
        if row.left_by is None:
            return

        def write() -> None:
            try:
                for one in dead_lives(event.store, row.id, row.created_ms):
                    dead = life(one.epoch, links, one.began_ms * _MS)
                    dead.set_attribute(names.ERROR, names.WORKER_DIED)
                    dead.set_status(Status(StatusCode.ERROR))
                    dead.end(one.died_ms * _MS)
            except NineLivesError as error:
                LOGGER.warning("the trace of run %s lacks its dead lives: %s", row.id, error)

        # Not on the event loop: it reads the store. Not a daemon: the process waits for it at its end.
        threading.Thread(target=write, name="ninelives-traces").start()

    def life_left(self, event: hooks.LifeLeft) -> None:
        """End the span of a life, and that of the run if it has ended."""
        life = self._lives.pop((event.run, event.epoch), None)
        if life is None:
            return
        if trace.get_current_span() is life.span:  # else this is another context, collected as garbage
            contexts.detach(life.token)
        if life.steps:
            counts = {"steps": life.steps, "decisions": life.decisions, "tokens": life.tokens}
            life.span.add_event(names.REPLAYED, counts)
        life.span.set_attribute(names.OUTCOME, life.outcome)
        if life.outcome in {state.value for state in State if state.is_final}:
            if life.outcome == State.FAILED:
                life.root.set_status(Status(StatusCode.ERROR))
            life.root.set_attribute(names.OUTCOME, life.outcome)
            life.root.end()
        life.span.end()

    def _note(self, event: hooks.RunEvent, outcome: str) -> None:
        if (life := self._lives.get((event.run, event.epoch))) is not None:
            life.outcome = outcome

    def parked(self, event: hooks.RunParked) -> None:
        """Note that the run waits."""
        self._note(event, "parked")

    def escalated(self, event: hooks.RunEscalation) -> None:
        """Note that the run waits for a person."""
        self._note(event, "escalated")

    def ended(self, event: hooks.RunEnded) -> None:
        """Note how the run ended."""
        self._note(event, event.state.value)

    def agent_raised(self, event: hooks.AgentRaised) -> None:
        """Mark a life whose agent raised."""
        if (life := self._lives.get((event.run, event.epoch))) is not None:
            self._fail(life.span, event.error)

    def replayed(self, event: hooks.StepReplayed) -> None:
        """Count a step that was replayed: it makes no span."""
        if (life := self._lives.get((event.run, event.epoch))) is None:
            return
        life.steps += 1
        if event.declared.is_decision:
            life.decisions += 1
            life.tokens += paid_tokens(event.record.body)

    def attempt_failed(self, event: hooks.AttemptFailed) -> None:
        """Note on the life that an attempt is repeated."""
        if (life := self._lives.get((event.run, event.epoch))) is not None:
            known: dict[str, Any] = {names.STEP: event.step, names.ATTEMPT: event.attempt}
            known |= {names.ERROR: _type(event.error), "pause_seconds": event.pause_seconds}
            life.span.add_event(names.RETRY, known)

    # Steps --------------------------------------------------------------------------------------

    def body_began(self, event: hooks.BodyBegan) -> None:
        """Begin the span of an attempt, and make it the current one in the body's context."""
        life = self._lives.get((event.run, event.epoch))
        if life is None:
            return
        operation = names.CHAT if event.declared.is_decision else names.EXECUTE_TOOL
        known = {names.OPERATION: operation, names.RUN: event.run, names.EPOCH: event.epoch}
        known |= {names.STEP: event.step, names.ATTEMPT: event.attempt, names.TOOL: event.name}
        parent = trace.set_span_in_context(life.span, Context())
        span = self._tracer()[0].start_span(f"{operation} {event.name}", parent, attributes=known)
        token = contexts.attach(trace.set_span_in_context(span))
        self._bodies[_body(event)] = span, token

    def body_ended(self, event: hooks.BodyEnded) -> None:
        """End the span of an attempt."""
        if (begun := self._bodies.pop(_body(event), None)) is None:
            return
        span, token = begun
        if trace.get_current_span() is span:  # else a cancelled body is collected in another context
            contexts.detach(token)
        if event.error is not None:
            self._fail(span, event.error)
        elif event.answered is not None and event.answered.cache:
            span.set_attribute(names.CACHE, event.answered.cache)  # no request was sent, and no token read
        elif event.declared.is_decision and span.is_recording():
            try:
                usage = usage_in(event.declared.codec.encode(event.value))
            except NineLivesError:
                usage = None
            if usage is not None:
                span.set_attributes({names.TOKENS_IN: usage.tokens_in, names.TOKENS_OUT: usage.tokens_out})
                if usage.model:
                    span.set_attribute(names.MODEL, usage.model)
                    span.update_name(f"{names.CHAT} {usage.model}")
        span.end()

    def _fail(self, span: Span, error: BaseException) -> None:
        span.set_attribute(names.ERROR, _type(error))
        # The message of an error may repeat arguments.
        span.set_status(Status(StatusCode.ERROR, masked_text(str(error)) if self._content else None))


def _type(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _body(event: hooks.StepEvent) -> tuple[str, int, int, str, int]:
    return event.run, event.epoch, event.turn, event.step, event.attempt
