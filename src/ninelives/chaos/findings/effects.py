"""Extract the side effects of a trial, and find those that happened more often than they should.

A request that carries its action's key counts once, however often it is sent: the receiver can recognise the
repetition. GET and other safe methods change nothing; PUT and DELETE are idempotent. Requests of a decision
or a `reads_only` action are queries, not effects.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import Struct, field

from ninelives.chaos.ledger import LedgerLine, What
from ninelives.chaos.protocol import has_key
from ninelives.chaos.trial.trial import Trial

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_REPEATABLE = frozenset({"PUT", "DELETE"})


class Effect(Struct):
    """One side effect."""

    kind: str
    target: str
    location: str
    step: str
    life: int
    at: float
    is_inside: bool
    stack: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    is_keyed: bool = False
    """Whether it carries the action's key."""

    @property
    def method(self) -> str:
        """The HTTP method of a request; empty for other effects."""
        return self.target.partition(" ")[0] if self.kind == "request" else ""

    @property
    def only_asks(self) -> bool:
        """Whether it is a request with a safe method, which changes nothing."""
        return self.method in _SAFE


class DeclaredStep(Struct, frozen=True):
    """The declared properties of a step."""

    name: str
    location: str
    is_resumable: bool = True
    is_decision: bool = False
    reads_only: bool = False
    is_transactional: bool = False

    @property
    def is_question(self) -> bool:
        """Whether it only reads: a decision or a `reads_only` action."""
        return self.is_decision or self.reads_only


def effects(trial: Trial) -> list[Effect]:
    """Return all side effects in order of time; the parts of a request are joined."""
    found: list[Effect] = []
    open_requests: dict[tuple[int, Any], Effect] = {}
    for line in trial.lines:
        if line.what is What.EFFECT:
            effect = effect_of(line)
            found.append(effect)
            if "connection" in line.data:
                open_requests[line.life, line.data["connection"]] = effect
        elif line.what is What.SENT and (request := open_requests.get((line.life, line.data["connection"]))):
            request.digests.append(line.data["digest"])
            if line.data["keyed"]:
                request.is_keyed, request.step = True, line.step
    return sorted([*found, *_through_proxy(trial)], key=lambda one: one.at)


def _through_proxy(trial: Trial) -> list[Effect]:
    """Return requests that only the proxy saw: other HTTP clients, other programs."""
    joined = {line.target: line for line in trial.lines if line.what is What.TOUCH and line.kind == "proxy"}
    keys = {line.target: line.step for line in trial.lines if line.what is What.BEGIN}
    found = []
    for request in trial.requests:
        line = joined.get(str(request.port)) or _started_by(trial, request.at)
        if line is None or line.data.get("is_request"):
            continue
        is_opaque = request.method == "CONNECT"
        # A thread started by the body has no context; the key in the request identifies its step.
        owner = next((step for key, step in keys.items() if has_key(request.sent, key)), None)
        whole = blake2b(request.sent, digest_size=8).hexdigest()
        found.append(
            Effect(
                kind="connect" if is_opaque else "request",
                target=request.target if is_opaque else f"{request.method} {request.target}",
                location=line.location,
                step=line.step if owner is None else owner,
                life=line.life,
                at=request.at,
                is_inside=line.is_inside,
                stack=line.data.get("stack", []),
                digests=[request.digest, whole],
                is_keyed=owner is not None,
            )
        )
    return found


def _started_by(trial: Trial, at: float) -> LedgerLine | None:
    """Return the last program started before a moment: it may have sent the request."""
    started = [line for line in trial.lines if line.kind == "command" and line.at <= at]
    return started[-1] if started else None


def effect_of(line: LedgerLine) -> Effect:
    """Return the effect that a line of the ledger describes."""
    return Effect(
        kind=line.kind,
        target=line.target,
        location=line.location,
        step=line.step,
        life=line.life,
        at=line.at,
        is_inside=line.is_inside,
        stack=line.data.get("stack", []),
        digests=[line.data["digest"]] if "digest" in line.data else [],
        is_keyed=line.data.get("keyed", False),
    )


def declarations(trial: Trial) -> dict[str, DeclaredStep]:
    """Return how the executed steps are declared, by step."""
    known = {
        line.step: DeclaredStep(line.step, line.location, **line.data)
        for line in trial.lines
        if line.what is What.DECLARED
    }
    executed = {line.step: line.data["name"] for line in trial.lines if line.what is What.BEGIN}
    return {step: known[name] for step, name in executed.items() if name in known}


def executions(trial: Trial) -> Counter[str]:
    """Count how often each step's body began."""
    return Counter(line.step for line in trial.lines if line.what is What.BEGIN)


def unsafe_requests(trial: Trial) -> dict[tuple[str, str], list[Effect]]:
    """Return the steps' requests with unsafe methods, grouped by step and method.

    Content and URL do not count: one that is new in each attempt does not make it a different request.
    """
    declared = declarations(trial)
    found: defaultdict[tuple[str, str], list[Effect]] = defaultdict(list)
    for effect in effects(trial):
        step = declared.get(effect.step)
        is_request = effect.kind == "request" and effect.is_inside and not effect.only_asks
        if is_request and not (step and step.is_question):
            found[effect.step, effect.method].append(effect)
    keyed = _keyed_steps(trial)
    for (name, _), same in found.items():
        alike = Counter(tuple(effect.digests) for effect in same)
        for effect in same:  # byte-identical, and the step read its key: the content was derived from the key
            effect.is_keyed |= name in keyed and alike[tuple(effect.digests)] > 1
    return dict(found)


def surplus(calm: Sequence[Trial], trial: Trial) -> Iterator[tuple[list[Effect], int]]:
    """Yield groups of requests that were sent too often, each with the number of extra requests.

    Expected is the most that a calm run sent, or a single process did: a model may answer differently.
    """
    usual = [unsafe_requests(run) for run in calm]
    for group, same in unsafe_requests(trial).items():
        lives = [[one for one in same if one.life == life] for life in {one.life for one in same}]
        due = max(counted(one) for one in (*lives, *(run[group] for run in usual if group in run)))
        if counted(same) > due:
            yield same, counted(same) - due


def _keyed_steps(trial: Trial) -> set[str]:
    return {line.step for line in trial.lines if line.what is What.KEY}


def opaque_connections(trial: Trial) -> dict[tuple[str, str], list[Effect]]:
    """Return connections with unreadable content, of acting steps that never read their key."""
    declared = declarations(trial)
    keyed = _keyed_steps(trial)
    found: defaultdict[tuple[str, str], list[Effect]] = defaultdict(list)
    for effect in effects(trial):
        step = declared.get(effect.step)
        if effect.kind == "connect" and step and not step.is_question and effect.step not in keyed:
            found[effect.step, effect.target].append(effect)
    return dict(found)


def counted(same: list[Effect]) -> int:
    """Count requests as their receiver would: those with a key once per URL."""
    if same[0].method in _REPEATABLE:
        return len({effect.target for effect in same})
    keyed = {effect.target for effect in same if effect.is_keyed}
    return sum(not effect.is_keyed for effect in same) + len(keyed)


def executed_again(trial: Trial) -> list[str]:
    """Return the steps whose body began after their result was recorded: there must be none."""
    return [line.step for line, recorded_at in _begun_after(trial) if _admitted_at(line) >= recorded_at]


def landed_late(trial: Trial) -> list[str]:
    """Return the steps whose body was admitted in time, by a worker that then hung before its first line.

    No runtime can prevent this: another worker has recorded the step since, and the late body runs anyway.
    """
    return [line.step for line, recorded_at in _begun_after(trial) if _admitted_at(line) < recorded_at]


def _begun_after(trial: Trial) -> Iterator[tuple[LedgerLine, float]]:
    """Yield the lines of bodies that began after their step was recorded, each with the recording's time."""
    turns: dict[str, int] = {}
    recorded: dict[tuple[str, int], float] = {}
    for line in trial.lines:
        for kind, step in line.records:
            if kind == "result" and step in turns:
                recorded.setdefault((step, turns[step]), line.at)
        if line.what is What.BEGIN:
            turns[line.step] = line.data["turn"]
            if (line.step, turns[line.step]) in recorded:
                yield line, recorded[line.step, turns[line.step]]


def _admitted_at(line: LedgerLine) -> float:
    """Return when a body's worker last checked that it holds its lease, in the ledger's time."""
    return line.at - float(line.data.get("admitted_ago", 0.0))
