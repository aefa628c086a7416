"""The mutants that may survive, each with the reason why no test can, or need, notice it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.mutation.rooms import Mutant, Result

Explained = dict[str, dict[Mutant, str]]
"""Why each mutant survives, by room."""

PATH = Path(__file__).with_name("survivors.toml")


class Survivor(Struct, frozen=True, forbid_unknown_fields=True):
    """An explained mutant. It is known by its change: mutmut's numbers move with every edit."""

    room: str
    function: str
    before: str
    after: str
    why: str

    @property
    def mutant(self) -> Mutant:
        """Return the mutant it explains."""
        return Mutant(self.function, self.before, self.after)


def read_explained(path: Path = PATH) -> Explained:
    """Return why each mutant survives, by room."""
    listed = msgspec.convert(tomllib.loads(path.read_text()).get("survivor", []), list[Survivor])
    explained: Explained = {}
    for one in listed:
        if not one.why.strip():
            raise ValueError(f"{path.name}: say why this survives: {one.room}, {one.function}: {one.after}")
        explained.setdefault(one.room, {})[one.mutant] = one.why
    return explained


def stanza(result: Result, mutant: Mutant) -> str:
    """Return what explains a mutant in the list, but for the reason."""
    fields = {"room": result.room.name, **msgspec.structs.asdict(mutant), "why": ""}
    lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items())
    return "\n".join(("[[survivor]]", *lines, ""))


def unexplained(result: Result, explained: Explained) -> Iterator[Mutant]:
    """Yield the survivors that the list does not know."""
    known = explained.get(result.room.name, {})
    yield from (mutant for mutant in result.survivors if mutant not in known)


def outdated(result: Result, explained: Explained) -> Iterator[Mutant]:
    """Yield what the list explains and what no longer survives, or no longer is."""
    yield from (mutant for mutant in explained.get(result.room.name, {}) if mutant not in result.survivors)
