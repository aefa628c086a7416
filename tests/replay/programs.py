"""Random agent programs: small trees of steps, forks, races and failures, made from a seed.

A program is made again from its seed wherever it is needed, so a run's arguments are a few numbers and a
failing program is told by its seed alone.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Literal

from msgspec import Struct

Role = Literal["action", "read", "decision", "plain", "nested"]
Trouble = Literal["value", "oops", "listed", "flaky", "giveup", "cancel"]
Fork = Literal["asyncio", "nl", "group", "settled"]
SLEEPY_FROM = 9000
"""Programs from this seed on sleep, too; they park and take their time."""

Draw = Literal["now", "uuid", "random", "log", "progress"]


class Call(Struct, frozen=True, tag=True):
    """A step; with `trouble` it fails or has to be tried again."""

    label: str
    role: Role
    trouble: Trouble | None = None


class Drawn(Struct, frozen=True, tag=True):
    """The time, randomness, or a line for people."""

    label: str
    what: Draw


class Slept(Struct, frozen=True, tag=True):
    """A durable sleep: in memory, or long enough to park for."""

    label: str
    seconds: float


class Choice(Struct, frozen=True, tag=True):
    """What comes next depends on a decision."""

    label: str
    yes: tuple[Node, ...]
    no: tuple[Node, ...]


class Forked(Struct, frozen=True, tag=True):
    """Several branches at once, all awaited."""

    label: str
    how: Fork
    arms: tuple[tuple[Node, ...], ...]


class Mapped(Struct, frozen=True, tag=True):
    """One step for each of several items."""

    label: str
    role: Role
    items: int
    limit: int


class Race(Struct, frozen=True, tag=True):
    """The first branch wins, the others are cancelled."""

    label: str
    arms: tuple[tuple[Node, ...], ...]


class Limited(Struct, frozen=True, tag=True):
    """Something under a limit of time."""

    label: str
    seconds: float
    inner: tuple[Node, ...]


class Dropped(Struct, frozen=True, tag=True):
    """A branch that is cancelled while others go on."""

    label: str
    arm: tuple[Node, ...]
    meanwhile: tuple[Node, ...]


class Named(Struct, frozen=True, tag=True):
    """A part under a branch name of its own."""

    label: str
    inner: tuple[Node, ...]


class Tried(Struct, frozen=True, tag=True):
    """A part whose failure is caught."""

    label: str
    inner: tuple[Node, ...]


Node = Call | Drawn | Slept | Choice | Forked | Mapped | Race | Limited | Dropped | Named | Tried


class Program(Struct, frozen=True):
    """What an agent does, turn by turn. `shared`: branches look at what the others have learnt."""

    seed: int
    is_async: bool
    is_pipelined: bool
    is_shared: bool
    turns: tuple[tuple[Node, ...], ...]

    @property
    def agent(self) -> str:
        """Name the agent that interprets it."""
        return (
            f"replay-{'async' if self.is_async else 'plain'}-{'pipelined' if self.is_pipelined else 'strict'}"
        )


@lru_cache(maxsize=4096)
def program_of(seed: int) -> Program:
    """Make the program of a seed."""
    rng = Random(seed)
    maker = _Maker(rng, is_async=rng.random() < 0.8, is_sleepy=seed >= SLEEPY_FROM)
    depth = rng.choice((1, 1, 2, 2, 3))
    turns = tuple(maker.block(depth) for _ in range(rng.choice((1, 1, 1, 2, 3))))
    return Program(seed, maker.is_async, rng.random() < 0.5, rng.random() < 0.5, turns)


class _Maker:
    def __init__(self, rng: Random, *, is_async: bool, is_sleepy: bool) -> None:
        self._rng, self.is_async, self._is_sleepy = rng, is_async, is_sleepy
        self._count = 0

    def block(self, depth: int) -> tuple[Node, ...]:
        return tuple(self._node(depth) for _ in range(self._rng.choice((1, 2, 2, 3))))

    def _label(self) -> str:
        self._count += 1
        return f"n{self._count}"

    def _arms(self, depth: int) -> tuple[tuple[Node, ...], ...]:
        return tuple(self.block(depth - 1) for _ in range(self._rng.choice((2, 2, 3))))

    def _node(self, depth: int) -> Node:
        rng, label = self._rng, self._label()
        simple = ("call", "call", "call", "drawn", "trouble", *(("slept",) * 2 if self._is_sleepy else ()))
        plain = ("choice", "tried", "named")
        forks = ("forked", "forked", "race", "race", "mapped", "limited", "dropped")
        kinds = simple if depth <= 0 else simple + plain + (forks if self.is_async else ())
        match rng.choice(kinds):
            case "call":
                return Call(label, self._role())
            case "trouble":
                role = self._role(nested=False)
                trouble: Trouble = rng.choice(("value", "oops", "listed", "flaky", "giveup"))
                if trouble == "giveup" and self._count % 2:
                    trouble = "cancel"  # a body that ends in a cancellation which nobody asked for
                made = Call(label, role, trouble)
                return made if rng.random() < 0.25 else Tried(self._label(), (made,))
            case "drawn":
                return Drawn(label, rng.choice(("now", "uuid", "random", "log", "progress")))
            case "slept":
                return Slept(label, rng.choice((0.0, 0.0005, 0.002, 0.06)))
            case "choice":
                return Choice(label, self.block(depth - 1), self.block(depth - 1))
            case "tried":
                return Tried(label, self.block(depth - 1))
            case "named":
                return Named(label, self.block(depth - 1))
            case "forked":
                return Forked(label, rng.choice(("asyncio", "nl", "group", "settled")), self._arms(depth))
            case "race":
                return Race(label, self._arms(depth))
            case "mapped":
                return Mapped(label, self._role(), rng.randint(2, 4), rng.randint(1, 3))
            case "limited":
                seconds = rng.choice((0.0002, 0.0005, 0.001, 5.0))
                return Tried(self._label(), (Limited(label, seconds, self.block(depth - 1)),))
        return Dropped(label, self.block(depth - 1), self.block(0))

    def _role(self, *, nested: bool = True) -> Role:
        roles: tuple[Role, ...] = ("action", "action", "read", "decision", "decision", "plain")
        return self._rng.choice((*roles, "nested") if nested else roles)
