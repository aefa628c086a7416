"""Loading what was valid when it was recorded, without asking its class again.

A validator that looks at the clock (pydantic's FutureDatetime, "not expired", a `__post_init__` that checks)
accepts a value on the first execution and refuses the same value on a replay. It has had its say when the
value was recorded. So where loading is refused, and only then, the value is loaded once more while
`TRUSTING`: what a hook or a validator raises then leaves the value as it was recorded. Types and shapes are
checked as ever, and the caller compares what came of it with what was recorded (`holds`).

Members of a union that is told apart by trying keep their validators: they may be what tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import lru_cache, wraps
from typing import Any, Final

import msgspec

TRUSTING: Final = ContextVar("ninelives_trusting", default=False)

_ENCODE: Final = msgspec.json.Encoder(order="deterministic").encode
_SUFFIX: Final = ":trusted"
_OPAQUE: Final = frozenset(
    ("metadata", "serialization", "default", "cls", "config", "expected", "function", "computed_fields")
)
"""Parts of pydantic's core schemas that hold no schemas of their own."""
_FUNCTIONS: Final = frozenset(("function-before", "function-after", "function-wrap"))


def holds(recorded: Any, loaded: Any) -> bool:
    """Tell whether a loaded value, dumped again, has all that was recorded; it may have new fields."""
    if type(recorded) is dict and type(loaded) is dict:
        return all(key in loaded and holds(held, loaded[key]) for key, held in recorded.items())
    if type(recorded) is list and type(loaded) is list and len(recorded) == len(loaded):
        # What was a set comes in any order.
        return all(map(holds, recorded, loaded)) or sorted(map(_ENCODE, recorded)) == sorted(
            map(_ENCODE, loaded)
        )
    return type(recorded) is type(loaded) and bool(recorded == loaded)


@lru_cache(maxsize=1024)
def lenient_validator(model: Any) -> Any:
    """Make a validator of a pydantic model that checks its shape alone; None where it cannot be made."""
    try:
        import pydantic_core

        schema = model.__pydantic_core_schema__
        lenient = _Lenient((pydantic_core.PydanticOmit, pydantic_core.PydanticUseDefault)).whole(schema)
        try:
            # Else nested models would be validated by their own validators, and not by this schema.
            return pydantic_core.SchemaValidator(lenient, _use_prebuilt=False)
        except TypeError:
            return pydantic_core.SchemaValidator(lenient)
    except Exception:  # noqa: BLE001 - of a schema that we do not know; the refusal stands then
        return None


class _Lenient:
    """Copies a core schema, without what looks at the clock, and with validators that cannot refuse."""

    def __init__(self, passes: tuple[type[Exception], ...]) -> None:
        self._passes = passes  # how pydantic's own validators speak to it: no refusals

    def whole(self, schema: dict[str, Any]) -> dict[str, Any]:
        if schema["type"] != "definitions":
            return {**self.copy(schema)}
        # The definitions as they are, too: for the unions, which are not changed.
        both = [*map(self.copy, schema["definitions"]), *schema["definitions"]]
        return {"type": "definitions", "schema": self.copy(schema["schema"]), "definitions": both}

    def copy(self, part: Any) -> Any:
        if isinstance(part, list | tuple):
            return type(part)(map(self.copy, part))
        if not isinstance(part, dict):
            return part
        kind = part.get("type")
        if kind == "union":
            return part
        made = {name: held if name in _OPAQUE else self.copy(held) for name, held in part.items()}
        for name in ("ref", "schema_ref"):
            if isinstance(made.get(name), str):
                made[name] += _SUFFIX
        if kind in ("date", "datetime"):
            made.pop("now_op", None)
            made.pop("now_utc_offset", None)
        if kind in _FUNCTIONS:
            made["function"] = {
                **part["function"],
                "function": self._calm(kind, part["function"]["function"]),
            }
        return made

    def _calm(self, kind: str, validate: Callable[..., Any]) -> Callable[..., Any]:
        """Give a validator that leaves the value as it is where the given one refuses it."""
        passes = self._passes

        @wraps(validate)
        def calm(value: Any, *more: Any) -> Any:
            try:
                return validate(value, *more)
            except passes:
                raise
            except Exception:  # noqa: BLE001 - whatever it was: the value was accepted when it was recorded
                return more[0](value) if kind == "function-wrap" else value

        return calm
