"""What Cedar may know of a call: a schema, made from the actions' annotations, and contexts that fit it.

Cedar skips a policy whose condition fails, also one that forbids. So policies are validated against the
schema before any call, and a value that does not fit its annotation never reaches Cedar: it is an error.
An argument that Cedar has no type for (float, dict, Any) is left out, and a policy that reads it is refused.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from ninelives.core.errors import UsageError
from ninelives.core.governance.verdicts import Call
from ninelives.governance.policy.declared import DeclaredAction
from ninelives.governance.policy.language.conform import conformer
from ninelives.governance.policy.language.errors import Unanswerable
from ninelives.governance.policy.language.sorts import (
    Sort,
    Sorts,
    fields_of_record,
    known,
    optional_fields,
)

Json = dict[str, Any]
_DEEPEST: Final = 6
_LONG: Final = 2**63
_SIMPLE: Final = {
    "bool": {"type": "Boolean"},
    "int": {"type": "Long"},
    "text": {"type": "String"},
    "member": {"type": "String"},
    "uuid": {"type": "String"},
    "decimal": {"type": "Extension", "name": "decimal"},
    "datetime": {"type": "Extension", "name": "datetime"},
}
_TEXTS: Final[Json] = {"type": "Set", "element": {"type": "String"}}
_FACTS: Final[Json] = {
    "kind": {"type": "String"},
    "run": {"type": "String"},
    "key": {"type": "String"},
    "depth": {"type": "Long"},
    "turn": {"type": "Long"},
    "resumable": {"type": "Boolean"},
    "reads_only": {"type": "Boolean"},
    "taint": _TEXTS,
    "labels": _TEXTS,
    "now": {"type": "Extension", "name": "datetime", "required": False},
}


def schema_of(declared: Iterable[DeclaredAction]) -> Json:
    """Return the schema of all actions, in Cedar's JSON. Raises UsageError for two of one name."""
    actions: Json = {}
    for one in declared:
        if one.name in actions:
            what = f"an agent and a step are both called {one.name!r}, and Cedar knows actions by name"
            raise UsageError(what, remedy="Give one of them name=")
        args = {"type": "Record", "attributes": _attributes(one.sorts, frozenset(), 0)}
        context = {"type": "Record", "attributes": {**_FACTS, "args": args}}
        applies = {"principalTypes": ["Agent"], "resourceTypes": ["Tool"], "context": context}
        actions[one.name] = {"appliesTo": applies}
    return {"": {"entityTypes": {"Agent": {}, "Tool": {}}, "actions": actions}}


def _attributes(fields: Any, optional: frozenset[str], depth: int) -> Json:
    found = {}
    for name, sorts in fields.items():
        made = _type(known(sorts), depth)
        if made is not None:
            is_required = name not in optional and len(known(sorts)) == len(sorts)
            found[name] = {**made, "required": is_required}
    return found


def _type(sorts: Sorts, depth: int) -> Json | None:
    """Return Cedar's type for a value; None where it has none."""
    if len({sort.name for sort in sorts}) != 1 or depth > _DEEPEST:
        return None
    (sort, *_) = sorts
    if sort.name in _SIMPLE:
        return dict(_SIMPLE[sort.name])
    if sort.name == "list":
        element = _type(sort.items, depth + 1)
        return {"type": "Set", "element": element} if element is not None else None
    if sort.name == "record" and len(sorts) == 1:
        try:
            fields = fields_of_record(sort.of)
        except (NameError, TypeError):
            return None
        return {"type": "Record", "attributes": _attributes(fields, optional_fields(sort.of), depth + 1)}
    return None


def context_of(call: Call, to: DeclaredAction) -> Json:
    """Return what Cedar is shown of a call. Raises Unanswerable when a value does not fit its annotation."""
    for name in to.sorts:
        if name not in call.args:
            raise Unanswerable(f"the call has no argument {name!r}")
    found = {
        "kind": call.kind,
        "run": call.run,
        "key": call.key,
        "depth": call.depth,
        "turn": call.turn,
        "resumable": call.resumable,
        "reads_only": call.reads_only,
        "taint": sorted(call.taint),
        "labels": sorted(f"{name}={value}" for name, value in call.labels.items()),
        "args": _record(call.args.__getitem__, to.sorts, "", 0),
    }
    return found if call.now is None else {**found, "now": _extension("datetime", _moment(call.now))}


def _record(get: Any, fields: Any, where: str, depth: int) -> Json:
    made = {}
    for name, sorts in fields.items():
        if _type(known(sorts), depth) is None:
            continue
        what = f"{where}.{name}" if where else f"the argument {name!r}"
        value = conformer(sorts, what)(get(name))
        if value is not None:
            made[name] = _value(value, known(sorts)[0], what, depth)
    return made


def _value(value: Any, sort: Sort, what: str, depth: int) -> Any:
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value.value, str) else value.name
    if sort.name == "decimal":
        return _extension("decimal", _decimal(Decimal(value), what))
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if not -_LONG <= value < _LONG:
            raise Unanswerable(f"{what} is no 64-bit number")
        return value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dt.datetime):
        return _extension("datetime", _moment(value))
    if sort.name == "list":
        conform = conformer(sort.items, f"an item of {what}")
        return [_value(conform(one), sort.items[0], what, depth + 1) for one in value]
    get = value.__getitem__ if isinstance(value, dict) else lambda name: getattr(value, name)
    optional = optional_fields(sort.of)
    fields = {
        name: sorts
        for name, sorts in fields_of_record(sort.of).items()
        if not (name in optional and isinstance(value, dict) and name not in value)
    }
    return _record(get, fields, what, depth + 1)


def _decimal(value: Decimal, what: str) -> str:
    if not value.is_finite() or value != round(value, 4):
        raise Unanswerable(f"{what} has more than four decimal places, which Cedar cannot hold")
    return format(value.quantize(Decimal("0.0001")), "f")


def _moment(value: dt.datetime) -> str:
    if value.tzinfo is None:
        raise Unanswerable("a time without a time zone")
    return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}Z"


def _extension(function: str, argument: str) -> Json:
    return {"__extn": {"fn": function, "arg": argument}}
