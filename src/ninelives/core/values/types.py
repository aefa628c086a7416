"""Turn an annotation into its shape: this module decides which types can be stored.

Everything is decided at registration. An annotation that cannot be stored raises UsageError with the path
inside it (`$.orders[].note`) and a remedy. pydantic and attrs are recognised by their attributes and never
imported here.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
import typing
from collections import abc
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from ninelives.core.errors import UsageError
from ninelives.core.secret import Secret
from ninelives.core.values.classes import (
    ABSENT,
    ClassShape,
    DeclaredField,
    Field,
    Flags,
    Later,
    Members,
    Model,
    Union,
    fields_of,
)
from ninelives.core.values.containers import BUILTINS, UNTYPED, Dict, FixedTuple, Items
from ninelives.core.values.scalars import NONE, SCALARS, SECRET, TAG, Misfit, Shape, secret_shape, step_to

MISSING: Final = inspect.Signature.empty
_UNTYPED: Final = (MISSING, Any, object)
_NEVER: Final = (None, type(None), typing.Never, typing.NoReturn)
_WRAPPERS: Final = (typing.Annotated, typing.Required, typing.NotRequired, typing.Final)
_ITEMS: Final[dict[Any, tuple[type, type | None]]] = {
    list: (list, None),
    set: (set, None),
    frozenset: (frozenset, None),
    abc.Sequence: (list, tuple),
    abc.MutableSequence: (list, None),
    abc.Collection: (list, tuple),
    abc.Set: (set, frozenset),
    abc.MutableSet: (set, None),
}
_SUPPORTED: Final = (
    "Use plain types (None bool int float str bytes list tuple dict set), dataclasses, msgspec.Struct, "
    "pydantic or attrs classes, TypedDict, NamedTuple, enums, aware datetimes, Decimal, UUID, and unions"
)
Memo = dict[Any, Shape]


def shape_of(annotation: Any, at: str = "$", memo: Memo | None = None) -> Shape:
    """Build the shape of an annotation. Raises UsageError when values of it could not be stored."""
    memo = {} if memo is None else memo
    if any(annotation is one for one in _UNTYPED):
        return UNTYPED
    if any(annotation is one for one in _NEVER):
        return NONE
    if isinstance(annotation, str | typing.ForwardRef):
        raise UsageError(
            f"the annotation {annotation!r} names a type that cannot be found",
            path=at,
            remedy="Define the type at module level, before the step",
        )
    if hasattr(annotation, "__supertype__"):
        return shape_of(annotation.__supertype__, at, memo)
    if type(annotation).__name__ == "TypeAliasType" and not typing.get_args(annotation):
        return _alias(annotation, at, memo)
    if isinstance(annotation, type) and annotation in SCALARS:
        return SCALARS[annotation]
    return _special(annotation, typing.get_origin(annotation), at, memo)


def _special(annotation: Any, origin: Any, at: str, memo: Memo) -> Shape:
    args = typing.get_args(annotation)
    if any(origin is wrapper for wrapper in _WRAPPERS):
        return shape_of(args[0], at, memo)
    if origin is typing.Union or isinstance(annotation, types.UnionType):
        return _union(args, at, memo)
    if origin is typing.Literal:
        return _literal(args, at)
    kind = annotation if origin is None else origin
    if kind is Secret:
        return SECRET
    try:
        if kind in _ITEMS:
            plain, tagged = _ITEMS[kind]
            item = shape_of(args[0] if args else Any, f"{at}[]", memo)
            return Items(_label(annotation), item, plain, tagged)
        if kind is tuple:
            return _tuple(annotation, args, at, memo)
        if kind in (dict, abc.Mapping, abc.MutableMapping):
            key, item = args or (Any, Any)
            return Dict(
                _label(annotation), shape_of(key, f"{at}.keys()", memo), shape_of(item, f"{at}[]", memo)
            )
    except TypeError:  # an unhashable thing is no annotation
        raise _unsupported(annotation, at) from None
    if isinstance(annotation, type) and origin is None:
        return _class(annotation, at, memo)
    raise _unsupported(annotation, at)


def _label(annotation: Any) -> str:
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__name__
    return str(annotation).replace("typing.", "").replace("collections.abc.", "")


def _unsupported(annotation: Any, at: str) -> UsageError:
    if typing.get_origin(annotation) is not None or isinstance(annotation, typing.TypeVar):
        remedy = "Your own generic types cannot be stored: use a class without parameters"
    else:
        remedy = _SUPPORTED
    return UsageError(f"values of {_label(annotation)} cannot be stored", path=at, remedy=remedy)


def _alias(annotation: Any, at: str, memo: Memo) -> Shape:
    if annotation not in memo:
        later = memo[annotation] = Later(annotation.__name__)
        later.found.append(shape_of(annotation.__value__, at, memo))
    return memo[annotation]


def _tuple(annotation: Any, args: tuple[Any, ...], at: str, memo: Memo) -> Shape:
    if not args and annotation is not tuple and annotation is not typing.Tuple:  # noqa: UP006 - users may write it
        return FixedTuple(_label(annotation), ())
    if not args or (len(args) == 2 and args[1] is ...):
        return Items(_label(annotation), shape_of(args[0] if args else Any, f"{at}[]", memo), tuple)
    return FixedTuple(
        _label(annotation), tuple(shape_of(arg, f"{at}[{count}]", memo) for count, arg in enumerate(args))
    )


def _union(args: tuple[Any, ...], at: str, memo: Memo) -> Shape:
    shapes = [(arg, shape_of(arg, at, memo)) for arg in args]
    if any(shape is UNTYPED for _, shape in shapes):
        return UNTYPED
    members: dict[str, Shape] = {}
    for arg, shape in shapes:
        short = _label(arg)
        twins = sum(_label(other) == short for other, _ in shapes) > 1
        name = f"{arg.__module__}.{arg.__qualname__}" if twins and isinstance(arg, type) else short
        if name in members:
            raise UsageError(
                f"two members of a union are both called {name}", path=at, remedy="Give them different names"
            )
        members[name] = shape
    return Union(" | ".join(members), members)


def _literal(args: tuple[Any, ...], at: str) -> Shape:
    by_data: dict[Any, Any] = {}
    for arg in args:
        data = arg.value if isinstance(arg, enum.Enum) else arg
        if type(data) not in (str, int, bool, type(None)) or (type(data), data) in by_data:
            raise UsageError(
                f"the literal {arg!r} cannot be stored",
                path=at,
                remedy="Use different str, int, bool or None",
            )
        by_data[type(data), data] = arg
    label = f"Literal[{', '.join(map(repr, args))}]"
    return Members(label, _NoType, by_data, _kinds(by_data))


class _NoType:
    """No value has this type: literals are recognised by value."""


def _kinds(by_data: dict[Any, Any]) -> frozenset[str]:
    names = {str: "str", int: "int", bool: "bool", type(None): "null"}
    return frozenset(names[kind] for kind, _ in by_data)


def _enum(cls: type[enum.Enum], at: str) -> Shape:
    values = [member.value for member in cls]
    by_value = {type(value) for value in values} in ({str}, {int})
    by_data = {(type(data), data): one for one in cls for data in [one.value if by_value else one.name]}
    try:
        for kind, data in by_data:
            SCALARS[kind].dump(data, 0)
    except Misfit as bad:
        raise UsageError(
            f"{cls.__name__} has a member that cannot be stored: {bad.what}", path=at, remedy=bad.remedy
        ) from None
    if issubclass(cls, enum.Flag):
        return Flags(cls.__name__, cls)
    return Members(cls.__name__, cls, by_data, _kinds(by_data))


# --------------------------------------------------------------------------------------------- classes


def _class(cls: type[Any], at: str, memo: Memo) -> Shape:
    if cls in memo:
        return memo[cls]
    if issubclass(cls, enum.Enum):
        return _enum(cls, at)
    if (secret := secret_shape(cls)) is not None:
        return secret
    if hasattr(cls, "model_dump") and hasattr(cls, "__pydantic_validator__"):
        return _model(cls)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _named_tuple(cls, at, memo)
    if typing.is_typeddict(cls):
        return _fill(ClassShape(cls.__name__, dict, dict), cls, at, memo)
    if issubclass(cls, msgspec.Struct):
        has_own, config = cls.__eq__ is msgspec.Struct.__eq__, cls.__struct_config__
        tag = (config.tag_field, config.tag) if config.tag_field is not None else None
        record = ClassShape(
            cls.__name__, cls, lambda values: cls(**values), has_own, _bare(cls), tag, config.array_like
        )
    elif dataclasses.is_dataclass(cls) or "__attrs_attrs__" in cls.__dict__:
        hook = "__post_init__" if dataclasses.is_dataclass(cls) else "__attrs_post_init__"
        record = ClassShape(cls.__name__, cls, _maker(cls, hook), _compares_all(cls), _maker(cls, None))
    else:
        raise _unsupported(cls, at)
    return _fill(_compared(record, at), cls, at, memo)


def _fill(record: ClassShape, cls: type[Any], at: str, memo: Memo) -> ClassShape:
    memo[cls] = record
    hints = _hints(cls, at)
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            raise _no_field("an InitVar is not kept by the object", at + step_to(name))
    of_class = fields_of(cls)
    declared = ((one, False) for one in of_class) if of_class is not None else _typed_dict_fields(cls, hints)
    for one, optional in declared:
        path = at + step_to(one.name)
        if one.key == TAG:
            raise _no_field("the key '$' is reserved", path)
        shape = shape_of(hints.get(one.name, Any), path, memo)
        record.fields.append(Field(one.name, one.key, shape, one.missing, optional))
    return record


def _no_field(what: str, path: str) -> UsageError:
    return UsageError(what, path=path, remedy="Make it an ordinary field with another name")


def _hints(cls: type[Any], at: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, localns={cls.__name__: cls}, include_extras=True)
    except (NameError, TypeError) as bad:
        raise UsageError(
            f"the annotations of {cls.__qualname__} cannot be read: {bad}",
            path=at,
            remedy="Define the types it names at module level",
        ) from bad


def _compared(record: ClassShape, at: str) -> ClassShape:
    if issubclass(record.type, BUILTINS):
        base = next(one for one in BUILTINS if issubclass(record.type, one))
        raise UsageError(
            f"{record.label} is also a {base.__name__}, whose contents are not a field and would be lost",
            path=at,
            remedy=f"Hold the {base.__name__} in a field",
        )
    if dataclasses.is_dataclass(record.type) and "__dataclass_fields__" not in vars(record.type):
        raise UsageError(
            f"{record.label} is not a dataclass itself, only its base is: what it adds would be lost",
            path=at,
            remedy="Decorate it with @dataclass",
        )
    equals: Any = record.type.__eq__
    if equals is object.__eq__ or (
        issubclass(record.type, msgspec.Struct) and not record.type.__struct_config__.eq
    ):
        raise UsageError(
            f"{record.label} is compared by identity, so we cannot check that it comes back equal",
            path=at,
            remedy="Give it an __eq__ (drop eq=False)",
        )
    return record


def _compares_all(cls: Any) -> bool:
    # Only an __eq__ that dataclasses or attrs generated for all fields is known to compare the class and each
    # field. Any other (an inherited one knows only the base's fields) proves too little: take the slow walk.
    code = getattr(vars(cls).get("__eq__"), "__code__", None)
    if dataclasses.is_dataclass(cls):
        compared = all(one.compare for one in dataclasses.fields(cls))
    else:
        compared = all(one.eq is True and one.eq_key is None for one in cls.__attrs_attrs__)
    return compared and code is not None and code.co_filename.startswith("<")


def _maker(cls: type[Any], after: str | None) -> Callable[[dict[str, Any]], object]:
    hook = getattr(cls, after, None) if after is not None else None
    new: Any = cls.__new__

    def make(values: dict[str, Any]) -> object:
        made = new(cls)
        for name, value in values.items():
            object.__setattr__(made, name, value)
        if hook is not None:
            hook(made)
        return made

    return make


def _bare(cls: Any) -> Callable[[dict[str, Any]], object]:
    """Return a maker of structs that skips `__post_init__`: it makes a subclass's with an empty one."""

    def make(values: dict[str, Any]) -> object:
        members = {"__post_init__": lambda _: None, "__annotations__": {}}
        made = type(cls)(cls.__name__, (cls,), members)(**values)
        msgspec.structs.force_setattr(made, "__class__", cls)
        return made

    return make


def _typed_dict_fields(cls: Any, hints: dict[str, Any]) -> Iterator[tuple[DeclaredField, bool]]:
    """Yield the keys of a TypedDict, and whether each may be missing."""
    for name, hint in hints.items():
        marker = typing.get_origin(hint)  # `__optional_keys__` misses it where annotations are postponed
        optional = marker is typing.NotRequired or (
            name in cls.__optional_keys__ and marker is not typing.Required
        )
        yield DeclaredField(name, name, ABSENT, None), optional


def _named_tuple(cls: Any, at: str, memo: Memo) -> Shape:
    later = memo[cls] = Later(cls.__name__)
    hints = _hints(cls, at)
    shapes = tuple(shape_of(hints.get(name, Any), at + step_to(name), memo) for name in cls._fields)
    required = len(cls._fields) - len(cls._field_defaults)
    later.found.append(FixedTuple(cls.__name__, shapes, lambda items: cls(*items), required, cls))
    return later.found[0]


def _model(cls: Any) -> Shape:
    by_name = "by_name" in inspect.signature(cls.model_validate_json).parameters
    root = getattr(cls, "__pydantic_root_model__", False)
    kinds = UNTYPED.kinds if root else frozenset({"dict", "$dict"})
    return Model(cls.__name__, cls, {"by_alias": False, "by_name": True} if by_name else {}, kinds)
