"""Comparisons: which are allowed, which can never be true, and the functions that carry them out."""

from __future__ import annotations

import ast
import enum
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from msgspec.structs import replace

from ninelives.governance.policy.language.conform import (
    TEXT_CHARACTERS,
    conformer,
    exact_class,
    group_of,
)
from ninelives.governance.policy.language.errors import Unanswerable, Unsound, did_you_mean
from ninelives.governance.policy.language.names import Run, Typed
from ninelives.governance.policy.language.sorts import NUMBERS, Sort, Sorts, has, known, label, sorts_of

Test = Callable[[Any, Any], Any]
SIGNS: Final[dict[type[ast.cmpop], tuple[str, Test]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_ORDERED: Final = ("int", "float", "decimal", "text", "bytes", "datetime", "date", "time", "timedelta")
_WHOLE: Final = ("record", "list", "dict", "opaque", "labels", "arguments", "call")


def compared(left: Typed, sign: str, test: Test, right: Typed) -> Run:
    """Return the function that compares two values. Raises Unsound."""
    left, right = _fitted(left, right), _fitted(right, left)
    for one in (left, right):
        if has(one.sorts, *_WHOLE):
            raise Unsound(f"{one.text!r} is {label(one.sorts)}, which cannot be compared", _remedy(one))
    if left.is_constant and right.is_constant:
        raise Unsound("it compares two constants", "Name an argument or a fact of the call")
    if has(left.sorts, "any") or has(right.sorts, "any"):
        return _dynamic(left, test, right, is_equality=sign in ("==", "!="))
    _check(left, sign, right)
    _check_range(left, sign, right)
    return _quick(left, test, right)


def _remedy(one: Typed) -> str:
    if has(one.sorts, "record"):
        return "Compare one of its fields"
    if has(one.sorts, "list"):
        return "Write `x in it`, `len(it)`, or `any(... for x in it)`"
    return "Compare one of its values" if has(one.sorts, "dict", "labels", "arguments", "call") else ""


def _check(left: Typed, sign: str, right: Typed) -> None:
    a, b = _groups(known(left.sorts)), _groups(known(right.sorts))
    if not a & b:
        never = "is always true" if sign == "!=" else "can never be true"
        what = f"compares {label(left.sorts)} with {label(right.sorts)}: it {never}"
        raise Unsound(what, _constant_remedy(left, right))
    if sign in ("==", "!="):
        return
    for one in (left, right):
        if not all(sort.name in _ORDERED for sort in known(one.sorts)):
            raise Unsound(f"{one.text!r} is {label(one.sorts)}, which has no order", "Use == or `in`")
    if len(_groups(known(left.sorts)) | _groups(known(right.sorts))) > 1:
        raise Unsound(f"orders {label(left.sorts)} and {label(right.sorts)}", "Both must be of one sort")


def _constant_remedy(left: Typed, right: Typed) -> str:
    for one, other in ((left, right), (right, left)):
        if type(one.constant) is str and one.is_constant:
            if has(other.sorts, *NUMBERS):
                return "Write the number without quotes"
            wrapper = next((name for name in ("datetime", "date", "uuid") if has(other.sorts, name)), None)
            if wrapper is not None:
                return f"Write {wrapper}({one.constant!r})"
        if one.is_constant and has(other.sorts, "text"):
            return f"Write {str(one.constant)!r}, in quotes"
    return "Compare values of one sort"


def _groups(sorts: Sorts) -> set[Any]:
    names = {sort.name: "number" if sort.name in NUMBERS else sort.name for sort in sorts}
    return {sort.of if sort.name == "member" else names[sort.name] for sort in sorts}


# Constants ---------------------------------------------------------------------------------------


def _fitted(one: Typed, other: Typed) -> Typed:
    """Return a constant as the value that it stands for beside the other: a Decimal, a member of an enum.

    Raises Unsound when the other can never have it.
    """
    if not one.is_constant:
        return one
    value, sorts = one.constant, known(other.sorts)
    if type(value) is float and has(sorts, "decimal"):
        made = Decimal(repr(value))
        return replace(one, constant=made, run=lambda _: made)
    classes = [sort for sort in sorts if sort.name == "member"]
    if type(value) in (str, int) and len(classes) == 1 and len(sorts) == 1:
        member = _member(classes[0], value)
        return replace(one, constant=member, sorts=tuple(classes), run=lambda _: member)
    return one


def _member(sort: Sort, value: Any) -> enum.Enum:
    members = sort.values or tuple(sort.of)
    found = [
        one for one in members if value == one.name or (type(one.value) is type(value) and one.value == value)
    ]
    if len(found) != 1:
        names = [str(one.value) if type(one.value) is str else one.name for one in members]
        what = "names several members of" if found else "is no member of"
        raise Unsound(
            f"{value!r} {what} {sort.of.__name__}", did_you_mean(str(value), names, "Its members are")
        )
    member: enum.Enum = found[0]
    return member


def _check_range(left: Typed, sign: str, right: Typed) -> None:
    """Refuse a comparison with a constant that the values of the other side decide already."""
    if left.is_constant:
        left, sign, right = right, MIRRORED[sign], left
    if not right.is_constant or right.constant is None:
        return
    answers = {_possible(sort, sign, right.constant) for sort in left.sorts}
    if answers == {frozenset({False})}:
        remedy = _values_remedy(left.sorts, right.constant)
        raise Unsound(f"{left.text} {sign} {right.constant!r} can never be true", remedy)
    if answers == {frozenset({True})}:
        remedy = _values_remedy(left.sorts, right.constant)
        raise Unsound(f"{left.text} {sign} {right.constant!r} is always true", remedy)


def _values_remedy(sorts: Sorts, value: Any) -> str:
    values = [str(one) for sort in sorts for one in sort.values]
    return did_you_mean(str(value), values, "It is one of") if values else f"It is {label(sorts)}"


_BOTH: Final = frozenset({False, True})


def _possible(sort: Sort, sign: str, constant: Any) -> frozenset[bool]:
    """Return the answers that a comparison of a sort's values with a constant can have."""
    test = next(test for shown, test in SIGNS.values() if shown == sign)
    if sort.name == "none":
        return _BOTH if sign not in ("==", "!=") else frozenset({sign == "!="})
    if sort.values:
        same = [one for one in sort.values if group_of(one) == group_of(constant)]
        return frozenset(bool(test(one, constant)) for one in same) or frozenset({sign == "!="})
    if sort.name not in NUMBERS or group_of(constant) != "number":
        return _BOTH if sort.name != "bool" or type(constant) is bool else frozenset({sign == "!="})
    if sort.name == "int" and sign in ("==", "!=") and constant != int(constant):
        return frozenset({sign == "!="})
    low, high = sort.low, sort.high
    found = set()
    if sign in ("==", "!="):
        inside = (low is None or low <= constant) and (high is None or constant <= high)
        return _BOTH if inside else frozenset({sign == "!="})
    # An order is decided by its ends: where one is open, the answer there is the sign's own.
    found.add(bool(test(low, constant)) if low is not None else sign in ("<", "<="))
    found.add(bool(test(high, constant)) if high is not None else sign in (">", ">="))
    return frozenset(found)


# Closures ----------------------------------------------------------------------------------------


def _quick(left: Typed, test: Test, right: Typed) -> Run:
    _refuse_mix(left, right)
    a, b = left.run, right.run
    if right.is_constant:
        if left.argument and (kind := exact_class(left.sorts)) is not None:
            return _of_argument(left, test, right.constant, kind)
        constant = right.constant
        return lambda call: test(a(call), constant)
    if left.is_constant:
        first = left.constant
        return lambda call: test(first, b(call))
    return lambda call: test(a(call), b(call))


def _of_argument(left: Typed, test: Test, constant: Any, kind: type) -> Run:
    """Return a quicker function for what most conditions are: an argument, compared with a constant."""
    name, slow = left.argument, left.run
    if kind is int:

        def compare(call: Any) -> Any:
            value = call.args.get(name)
            return test(value, constant) if value.__class__ is int else test(slow(call), constant)

        return compare

    def compare_text(call: Any) -> Any:
        value = call.args.get(name)
        if value.__class__ is str and len(value) <= TEXT_CHARACTERS:
            return test(value, constant)
        return test(slow(call), constant)

    return compare_text


def _refuse_mix(left: Typed, right: Typed) -> None:
    if any(has(a.sorts, "decimal") and has(b.sorts, "float") for a, b in ((left, right), (right, left))):
        constant = left.is_constant or right.is_constant
        if not constant:
            raise Unsound("compares Decimal with float: 0.1 is not Decimal('0.1')", "Make both Decimal")


def _dynamic(left: Typed, test: Test, right: Typed, *, is_equality: bool) -> Run:
    a, b = left.run, right.run

    def compare(call: Any) -> Any:
        first, second = a(call), b(call)
        if first is None or second is None:
            if is_equality:
                return test(first, second)
            raise Unanswerable(f"orders None: {left.text}, {right.text}")
        if group_of(first) != group_of(second):
            kinds = f"{type(first).__name__} with {type(second).__name__}"
            raise Unanswerable(f"compares {kinds}: {left.text}, {right.text}")
        return test(first, second)

    return compare


def contained(item: Typed, holder: Typed) -> Run:
    """Return the function for `item in holder`. Raises Unsound."""
    if holder.is_constant and type(holder.constant) is tuple:
        return _in_constants(item, holder)
    if has(holder.sorts, "text") and len(known(holder.sorts)) == 1:
        if not (has(item.sorts, "text") and len(known(item.sorts)) == 1):
            raise Unsound(f"searches {label(item.sorts)} in a text", "Search a text in a text")
        a, b = item.run, holder.run
        return lambda call: a(call) in b(call)
    if has(holder.sorts, "list") and len(known(holder.sorts)) == 1:
        return _in_list(item, holder)
    if has(holder.sorts, "dict", "labels") and len(known(holder.sorts)) == 1:
        if not has(item.sorts, "text"):
            raise Unsound(f"searches {label(item.sorts)} among names", "Search a text")
        a, b = item.run, holder.run
        return lambda call: a(call) in b(call)
    raise Unsound(f"{holder.text!r} is {label(holder.sorts)}: nothing is `in` it", "Compare with ==")


def _in_constants(item: Typed, holder: Typed) -> Run:
    if not holder.constant:
        raise Unsound("nothing is in an empty list: it can never be true", "Name the values")
    run, values = item.run, []
    for value in holder.constant:
        one = Typed(repr(value), sorts_of(type(value)), lambda _: None, constant=value)
        compared(item, "==", operator.eq, one)
        values.append(_fitted(one, item).constant)
    if has(item.sorts, "any"):
        groups = {group_of(one) for one in values}

        def search(call: Any) -> bool:
            found = run(call)
            if found is not None and group_of(found) not in groups:
                raise Unanswerable(f"compares {type(found).__name__} with other sorts: {item.text}")
            return found in values

        return search
    named = frozenset(values)
    return lambda call: run(call) in named


def _in_list(item: Typed, holder: Typed) -> Run:
    (sort,) = known(holder.sorts)
    # As one element: whatever cannot be compared with the item is refused here.
    element = Typed(f"an item of {holder.text}", sort.items, lambda pair: pair[1])
    by_item = Typed(item.text, item.sorts, lambda pair: pair[0], constant=item.constant)
    same = compared(element, "==", operator.eq, by_item)
    first, second = item.run, holder.run
    conform = conformer(sort.items, f"an item of {holder.text!r}")

    def search(call: Any) -> bool:
        wanted = first(call)
        # Every item is read, also those after the one that is found: the answer must not depend on order.
        answers = [same((wanted, conform(one))) for one in second(call)]
        return any(answers)

    return search
