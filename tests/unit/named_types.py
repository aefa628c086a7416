"""Types whose names are not ASCII, and types that are only built when they are first used; each with a value.

Read by processes that have done nothing else yet: a decoder that depends on what a process did before would
show here, and only here.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

import attrs
import msgspec
import pydantic

T = TypeVar("T")


@dataclasses.dataclass
class Zahlung:
    an: str
    beträge: int = 0
    größe: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Überweisung:
    zahlung: Zahlung
    währung: str = "EUR"
    teile: list[Zahlung] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Erbe(Zahlung):
    straße: str = ""


class Référence(TypedDict, total=False):
    numéro: str
    x: int


class Pièce(TypedDict):
    nom: str
    clé: NotRequired[int]
    référence: NotRequired[Référence]


Laufend = TypedDict("Laufend", {"zähler": int, "größter wert": int}, total=False)


class Punkt(NamedTuple):
    höhe: int
    länge: int = 2


class Ebene(NamedTuple):
    zahlung: Zahlung
    größe: int = 0


class Botschaft(msgspec.Struct):
    größe: int = 0
    text: str = ""


class Umbenannt(msgspec.Struct, rename={"size": "größe"}):
    size: int = 0


class Rot(msgspec.Struct, tag="röt"):
    n: int = 0


class Blau(msgspec.Struct, tag="bläu"):
    n: int = 0


@attrs.define
class Stück:
    gewicht: float = 1.0
    länge: int = 0


class Farbe(enum.Enum):
    GRÜN = "grün"
    WEISS = "weiß"


class Größe(enum.IntEnum):
    KLEIN = 1
    GROß = 2


class Gemischt(enum.Enum):
    PÄRCHEN = (1, 2)
    WORT = "wört"


class Stimmung(enum.StrEnum):
    FRÖHLICH = "fröhlich"


class Katze(pydantic.BaseModel):
    art: Literal["kätzchen"] = "kätzchen"
    länge: int = 0


class Hund(pydantic.BaseModel):
    art: Literal["hündchen"] = "hündchen"
    länge: int = 0


class Käfig(pydantic.BaseModel):
    tier: Annotated[Katze | Hund, pydantic.Field(discriminator="art")]
    größe: int = pydantic.Field(default=0, alias="grösse")


class Spät(pydantic.BaseModel):
    """Built when it is first used."""

    model_config = pydantic.ConfigDict(defer_build=True)

    kind: Später | None = None
    höhe: int = 0


class Später(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(defer_build=True)

    breite: int = 0


class Kiste(pydantic.BaseModel, Generic[T]):
    inhalt: T
    größe: int = 0


class KatzenKiste(Kiste[Katze]):
    pass


class Liste(pydantic.RootModel[list[Katze]]):
    pass


@dataclasses.dataclass
class Baum:
    größe: int = 0
    äste: list[Baum] = dataclasses.field(default_factory=list)


CASES: dict[str, tuple[Any, Any]] = {
    "dataclass": (Zahlung, Zahlung("ann", 42, 1.5)),
    "nested": (Überweisung, Überweisung(Zahlung("ann", 42), "CHF", [Zahlung("bob", 7)])),
    "inherited": (Erbe, Erbe("ann", 42, 0.5, "Weg")),
    "in a list": (list[Zahlung], [Zahlung("ann", 42)]),
    "in a dict": (dict[str, Zahlung], {"größe": Zahlung("ann", 42)}),
    "in a tuple": (tuple[Zahlung, int], (Zahlung("ann", 42), 1)),
    "optional": (Zahlung | None, Zahlung("ann", 42)),
    "union": (Zahlung | Erbe, Erbe("ann", 42, None, "Weg")),
    "typed dict": (Référence, {"numéro": "n-1", "x": 1}),
    "typed dict, not required": (Pièce, {"nom": "a", "clé": 3, "référence": {"numéro": "n"}}),
    "typed dict by call": (Laufend, {"zähler": 1, "größter wert": 2}),
    "named tuple": (Punkt, Punkt(1, 7)),
    "in a named tuple": (Ebene, Ebene(Zahlung("ann", 42), 3)),
    "struct": (Botschaft, Botschaft(3, "ü")),
    "renamed struct": (Umbenannt, Umbenannt(3)),
    "tagged structs": (Rot | Blau, Blau(3)),
    "attrs": (Stück, Stück(2.0, 3)),
    "enum": (Farbe, Farbe.GRÜN),
    "int enum": (Größe, Größe.GROß),
    "enum by name": (Gemischt, Gemischt.PÄRCHEN),
    "str enum": (dict[Stimmung, int], {Stimmung.FRÖHLICH: 1}),
    "literal": (Literal["grün", "weiß"], "weiß"),
    "model": (Katze, Katze(länge=3)),
    "discriminated": (Käfig, Käfig(tier=Hund(länge=3), grösse=4)),
    "built late": (Spät, Spät(kind=Später(breite=2), höhe=3)),
    "generic": (KatzenKiste, KatzenKiste(inhalt=Katze(länge=3), größe=2)),
    "generic, parametrised": (Kiste[Hund], Kiste[Hund](inhalt=Hund(länge=3), größe=2)),
    "root": (Liste, Liste([Katze(länge=3)])),
    "recursive": (Baum, Baum(1, [Baum(2, [Baum(3)])])),
    "with a time": (dict[str, dt.datetime], {"ä": dt.datetime(2030, 1, 1, tzinfo=dt.UTC)}),
}
