"""Load recorded values without validating them again (see docs/decisions/0018).

A validator that reads the clock (pydantic's FutureDatetime, "not expired", a `__post_init__` that checks)
accepts a value on the first execution and refuses the same value on replay. The value was validated when it
was recorded. So only where loading is refused, the value is loaded once more while `TRUSTING`: then an error
in a hook or validator is ignored and the recorded value stays. Types and shapes are still checked, and the
caller compares the result with the record (`holds`).

Members of a union that pydantic selects by trying keep their validators: the validators may select the
member.
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
"""Parts of pydantic's core schemas that contain no schemas."""
_FUNCTIONS: Final = frozenset(("function-before", "function-after", "function-wrap"))


def holds(recorded: Any, loaded: Any) -> bool:
    """Return whether a loaded value, dumped again, has everything recorded; it may have new fields."""
    if type(recorded) is dict and type(loaded) is dict:
        return all(key in loaded and holds(held, loaded[key]) for key, held in recorded.items())
    if type(recorded) is list and type(loaded) is list and len(recorded) == len(loaded):
        # A set is dumped in any order.
        return all(map(holds, recorded, loaded)) or sorted(map(_ENCODE, recorded)) == sorted(
            map(_ENCODE, loaded)
        )
    return type(recorded) is type(loaded) and bool(recorded == loaded)


@lru_cache(maxsize=1024)
def lenient_validator(model: Any) -> Any:
    """Return a validator of a pydantic model that checks only its shape; None where it cannot be made."""
    try:
        import pydantic_core

        schema = model.__pydantic_core_schema__
        lenient = _Lenient((pydantic_core.PydanticOmit, pydantic_core.PydanticUseDefault)).whole(schema)
        try:
            # Otherwise nested models would use their own prebuilt validators, not this schema.
            return pydantic_core.SchemaValidator(lenient, _use_prebuilt=False)
        except TypeError:
            return pydantic_core.SchemaValidator(lenient)
    except Exception:  # noqa: BLE001 - an unknown schema; the caller's refusal stands then
        return None


class _Lenient:
    """Copies a core schema without checks that read the clock, and with validators that cannot refuse."""

    def __init__(self, passes: tuple[type[Exception], ...]) -> None:
        self._passes = passes  # exceptions by which validators signal pydantic: these are no refusals

    def whole(self, schema: dict[str, Any]) -> dict[str, Any]:
        if schema["type"] != "definitions":
            return {**self.copy(schema)}
        # Keep the original definitions too, for the unions, which are not changed.
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
        """Return a validator that keeps the value unchanged where the given one refuses it."""
        passes = self._passes

        @wraps(validate)
        def calm(value: Any, *more: Any) -> Any:
            try:
                return validate(value, *more)
            except passes:
                raise
            except Exception:  # noqa: BLE001 - the value was accepted when it was recorded
                return more[0](value) if kind == "function-wrap" else value

        return calm
