"""The JSON Schema of a codec's values, to check them where the type's code is not loaded.

A small part of JSON Schema is enough: type, enum, format, items, prefixItems, properties, required,
additionalProperties, anyOf. What a shape cannot express in it is left open: the process with the type
decides in the end. Formats are the labels of our scalars (datetime, Decimal, …), read as the codec reads
them.
"""

from __future__ import annotations

from typing import Any, Final

from ninelives.core.errors import UsageError
from ninelives.core.values.classes import ClassShape, Members, Model, Union
from ninelives.core.values.codec import Codec
from ninelives.core.values.containers import Dict, FixedTuple, Items
from ninelives.core.values.scalars import (
    SECRET_TAG,
    TAGGED_SCALARS,
    Misfit,
    Scalar,
    SecretShape,
    Shape,
    expected,
    kind_of,
    step_to,
    tag,
)

Schema = dict[str, Any]

_TYPES: Final = {"null": "null", "bool": "boolean", "int": "integer", "float": "number", "str": "string"}
_KINDS: Final = {
    "null": {"null"},
    "boolean": {"bool"},
    "integer": {"int"},
    "number": {"int", "float"},
    "string": {"str"},
    "array": {"list"},
    "object": {"dict"},
}
_FORMATS: Final = {scalar.label: scalar for scalar in TAGGED_SCALARS.values()}


def schema_for(codec: Codec) -> Schema:
    """Return the schema of what a codec decodes; {} where any value is valid."""
    return _of(codec.shape, ())


def _of(shape: Shape, above: tuple[int, ...]) -> Schema:
    if id(shape) in above:
        return {}  # a type that contains itself: left to the codec
    above = (*above, id(shape))
    if isinstance(shape, Scalar):
        found: Schema = {"type": _TYPES[shape.kind]}
        return found | {"format": shape.label} if shape.label in _FORMATS else found
    if isinstance(shape, SecretShape):
        return {"format": SECRET_TAG}
    if isinstance(shape, Members):
        return {"enum": [data for _, data in shape.by_data]}
    if isinstance(shape, Union):
        return {"anyOf": [_of(member, above) for member in shape.members.values()]}
    if isinstance(shape, Items | FixedTuple):
        return _of_list(shape, above)
    return _of_object(shape, above)


def _of_list(shape: Items | FixedTuple, above: tuple[int, ...]) -> Schema:
    if isinstance(shape, Items):
        return {"type": "array", "items": _of(shape.item, above)} if shape.tagged is None else {}
    parts = [_of(part, above) for part in shape.parts]
    least = len(parts) if shape.required < 0 else shape.required
    return {"type": "array", "prefixItems": parts, "minItems": least, "items": False}


def _of_object(shape: Shape, above: tuple[int, ...]) -> Schema:
    if isinstance(shape, ClassShape):
        return _of_record(shape, above)
    if isinstance(shape, Dict) and isinstance(shape.key, Scalar) and shape.key.kind == "str":
        return {"type": "object", "additionalProperties": _of(shape.item, above)}
    if isinstance(shape, Model) and "list" not in shape.kinds:
        return {"type": "object", "title": shape.label}
    return {}


def _of_record(shape: ClassShape, above: tuple[int, ...]) -> Schema:
    required = [one.key for one in shape.fields if one.missing is None and not one.optional]
    return {
        "type": "object",
        "title": shape.label,
        "properties": {one.key: _of(one.shape, above) for one in shape.fields},
        "required": required,
        "additionalProperties": False,
    }


def asks_secret(schema: Schema) -> bool:
    """Return whether the value that is asked for is a secret."""
    return schema.get("format") == SECRET_TAG


def as_secret(schema: Schema, value: object) -> object:
    """Return a person's answer as the secret that was asked for: it is masked wherever it is shown."""
    if not asks_secret(schema) or type(value) is not str:
        return value
    return tag(SECRET_TAG, ["", "str", value])


def check(schema: Schema, value: object, *, what: str, run: str | None = None) -> None:
    """Check a value against a schema from `schema_for`. Raises UsageError with the path to what is wrong."""
    try:
        _check(schema, value)
    except Misfit as bad:
        raise UsageError(
            f"{what} does not fit: {bad.what}", run=run, path=bad.path(), remedy="Give a value that does"
        ) from None


def _check(schema: Schema, value: Any) -> None:
    if "anyOf" in schema:
        _check_any(schema["anyOf"], value)
    if "enum" in schema and not any(type(value) is type(one) and value == one for one in schema["enum"]):
        raise Misfit(f"{value!r} is none of {', '.join(map(repr, schema['enum']))}")
    if "type" in schema and kind_of(value) not in _KINDS[schema["type"]]:
        raise expected(str(schema.get("title") or schema.get("format") or schema["type"]), value)
    if schema.get("format") in _FORMATS:
        _FORMATS[schema["format"]].load(value)
    if schema.get("type") == "array":
        _check_items(schema, value)
    elif schema.get("type") == "object":
        _check_fields(schema, value)


def _check_any(schemas: list[Schema], value: object) -> None:
    refusals = []
    for one in schemas:
        try:
            return _check(one, value)
        except Misfit as bad:
            refusals.append(bad)
    # Report the alternative that got deepest into the value: most likely the one that was meant.
    raise max(refusals, key=lambda bad: len(bad.steps))


def _check_items(schema: Schema, value: list[Any]) -> None:
    parts = schema.get("prefixItems", [])
    more = schema.get("items", {})
    if len(value) < schema.get("minItems", 0) or (more is False and len(value) > len(parts)):
        raise Misfit(f"{len(value)} items, expected {len(parts)}")
    for count, item in enumerate(value):
        try:
            _check(parts[count] if count < len(parts) else more, item)
        except Misfit as bad:
            raise bad.under(f"[{count}]", value)  # noqa: B904 - the same error, going up


def _check_fields(schema: Schema, value: dict[str, Any]) -> None:
    for name in schema.get("required", ()):
        if name not in value:
            raise Misfit(f"{schema.get('title', 'it')} has no {name!r}")
    known, more = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name, held in value.items():
        if name not in known and more is False:
            raise Misfit(f"{schema.get('title', 'it')} has no field {name!r}").under(step_to(name), value)
        try:
            _check(known.get(name, more), held)
        except Misfit as bad:
            raise bad.under(step_to(name), value)  # noqa: B904 - the same error, going up
