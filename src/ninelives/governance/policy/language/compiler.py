"""Turn a condition into a function: parsed by `ast`, checked against the sorts of the action's arguments.

Each part becomes a closure; nothing is ever evaluated as code. What is not listed
here is not in the language.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from ninelives.governance.policy.language import functions, ranges
from ninelives.governance.policy.language.comparing import SIGNS, compared, contained
from ninelives.governance.policy.language.conform import conformer
from ninelives.governance.policy.language.errors import Unanswerable, Unsound, did_you_mean
from ninelives.governance.policy.language.names import DAYS, Run, Scope, Typed
from ninelives.governance.policy.language.sorts import (
    ANY,
    BOOL,
    DATE,
    DECIMAL,
    DURATION,
    FLOAT,
    INT,
    MOMENT,
    NUMBERS,
    Sort,
    Sorts,
    fields_of_record,
    has,
    known,
    label,
    optional_fields,
    sorts_of,
)

MOST_CHARACTERS, MOST_PARTS, MOST_DEPTH = 2_000, 200, 20
_MOST_BITS, _MOST_ITEMS = 4_096, 10_000
_ARITHMETIC: Final[dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.Mod: ("%", operator.mod),
}
_PARTS_OF_TIME: Final = {
    "year": Sort("int", int, low=1, high=9999),
    "month": Sort("int", int, low=1, high=12),
    "day": Sort("int", int, low=1, high=31),
    "hour": Sort("int", int, low=0, high=23),
    "minute": Sort("int", int, low=0, high=59),
    "weekday": Sort("text", values=DAYS),
    "date": DATE,
}


_SIGNS: Final = (("&&", "and"), ("||", "or"), ("!", "not"))


def parse(text: str) -> ast.expr:
    """Parse a condition, within the limits of its size. Raises Unsound."""
    if len(text) > MOST_CHARACTERS:
        raise Unsound(
            f"it has {len(text):,} characters, over the limit of {MOST_CHARACTERS:,}", "Split the rule"
        )
    try:
        tree = ast.parse(f"({text}\n)", mode="eval").body
    except SyntaxError as error:
        remedy = "Write an expression, such as: cents > 10_000 and not tainted('web')"
        words = [f"{word} for {sign}" for sign, word in _SIGNS if sign in text.replace("!=", "")]
        if words:
            remedy = f"Write {', '.join(words)}"
        raise Unsound(f"it is not an expression: {error.msg}", remedy) from None
    except (ValueError, MemoryError, RecursionError, OverflowError) as error:
        raise Unsound(f"it cannot be parsed: {type(error).__name__}", "Make it simpler") from None
    level, parts = [tree], 0
    for depth in range(MOST_DEPTH + 1):
        level = [inner for outer in level for inner in ast.iter_child_nodes(outer) if _is_part(inner)]  # type: ignore[misc]
        parts += len(level)
        if not level:
            return tree
        if parts > MOST_PARTS or depth == MOST_DEPTH:
            raise Unsound(f"it has more than {MOST_PARTS} parts, or {MOST_DEPTH} levels", "Split the rule")
    return tree


def _is_part(node: ast.AST) -> bool:
    return not isinstance(node, ast.expr_context | ast.operator | ast.boolop | ast.unaryop | ast.cmpop)


def compile_condition(tree: ast.expr, scope: Scope) -> Run:
    """Return the function that decides whether a rule applies to a call: it returns True or False.

    It raises when that cannot be decided, whatever an argument's own code raises. Raises Unsound.
    """
    try:
        made = _Compiler(scope).condition(tree, "the condition")
        ranges.check(tree)
    except RecursionError:
        raise Unsound("it is nested too deeply", "Split the rule") from None
    return made


class _Compiler:
    """Compiles the parts of one condition."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def condition(self, node: ast.expr, what: str) -> Run:
        """Compile a part that is true or false. Raises Unsound."""
        made = self.part(node)
        if not all(sort.name == "bool" for sort in made.sorts):
            remedy = "Compare it: `... > 0`, `... == 'text'`, `... is not None`"
            raise Unsound(f"{what} is {label(made.sorts)}, which is neither true nor false", remedy, node)
        if made.is_constant:
            always = "always true" if made.constant else "never true"
            raise Unsound(f"{what} is {always}", "Leave out `when`, or the rule", node)
        return made.run

    def part(self, node: ast.expr) -> Typed:
        """Compile any part. Raises Unsound, naming the part."""
        make = _PARTS.get(type(node))
        if make is None:
            what = f"{type(node).__name__} is not part of the language"
            raise Unsound(what, "It has comparisons, and, or, not, in, arithmetic and a few functions", node)
        try:
            return make(self, node)
        except Unsound as refused:
            refused.node = refused.node or node
            raise

    def constant(self, node: ast.Constant) -> Typed:
        value = node.value
        if type(value) is int and value.bit_length() > _MOST_BITS:
            raise Unsound("the number is too large", "Write a smaller one")
        if type(value) is float and (value in (float("inf"), float("-inf"))):
            raise Unsound("the number is infinite", "Write a finite one")
        if value is not None and type(value) not in (bool, int, float, str):
            raise Unsound(
                f"a constant of {type(value).__name__}", "Write a text, a number, True, False or None"
            )
        return Typed(repr(value), sorts_of(type(value)), lambda _: value, constant=value)

    def sequence(self, node: ast.List | ast.Tuple | ast.Set) -> Typed:
        values = [self.part(one) for one in node.elts]
        if not all(one.is_constant and type(one.constant) not in (tuple, type(None)) for one in values):
            raise Unsound(
                "a list has more than texts and numbers in it", "List constants; write `is None` apart"
            )
        held = tuple(one.constant for one in values)
        items = tuple(dict.fromkeys(sort for one in values for sort in one.sorts))
        return Typed(repr(held), (Sort("list", items=items or (ANY,)),), lambda _: held, constant=held)

    def name(self, node: ast.Name) -> Typed:
        if node.id in functions.FUNCTIONS and node.id not in self._scope.arguments:
            raise Unsound(f"{node.id!r} is a function", f"Call it: {node.id}(...)")
        return self._scope.name(node.id)

    def junction(self, node: ast.BoolOp) -> Typed:
        runs = [self.condition(one, f"a side of {type(node.op).__name__.lower()!r}") for one in node.values]
        return Typed(ast.unparse(node), (BOOL,), joined(runs, is_and=isinstance(node.op, ast.And)))

    def unary(self, node: ast.UnaryOp) -> Typed:
        if isinstance(node.op, ast.Not):
            run = self.condition(node.operand, "what `not` turns round")
            return Typed(ast.unparse(node), (BOOL,), lambda call: not run(call))
        made = self.part(node.operand)
        if isinstance(node.op, ast.Invert) or not all(one.name in NUMBERS for one in made.sorts):
            raise Unsound(f"a sign before {label(made.sorts)}", "It stands before a number")
        sign = operator.neg if isinstance(node.op, ast.USub) else operator.pos
        plain = tuple(Sort(one.name, one.of) for one in made.sorts)
        if made.is_constant:
            value = sign(made.constant)
            return Typed(repr(value), plain, lambda _: value, constant=value)
        return Typed(ast.unparse(node), plain, lambda call: sign(made.run(call)))

    def arithmetic(self, node: ast.BinOp) -> Typed:
        if type(node.op) not in _ARITHMETIC:
            raise Unsound(f"{type(node.op).__name__} is not part of the language", "There are + - * / %")
        sign, function = _ARITHMETIC[type(node.op)]
        left, right = self.part(node.left), self.part(node.right)
        sort = _result(left.sorts, sign, right.sorts)
        if sort is DECIMAL:
            function = _of_decimals(function)
        a, b = left.run, right.run
        return Typed(ast.unparse(node), (sort,), lambda call: _calculated(function, a(call), b(call)))

    def comparison(self, node: ast.Compare) -> Typed:
        sides = [self.part(one) for one in (node.left, *node.comparators)]
        runs = [
            self._compared(left, sign, right)
            for left, sign, right in zip(sides, node.ops, sides[1:], strict=False)
        ]
        return Typed(ast.unparse(node), (BOOL,), joined(runs, is_and=True))

    def _compared(self, left: Typed, sign: ast.cmpop, right: Typed) -> Run:
        if right.is_constant and right.constant is None:
            return _is_none(left, sign)
        if isinstance(sign, ast.Is | ast.IsNot):
            raise Unsound("`is` compares only with None", "Write == or !=")
        if isinstance(sign, ast.In | ast.NotIn):
            run = contained(left, right)
            return run if isinstance(sign, ast.In) else lambda call: not run(call)
        return compared(left, *SIGNS[type(sign)], right)

    def attribute(self, node: ast.Attribute) -> Typed:
        name, holder = node.attr, self.part(node.value)
        if has(holder.sorts, "arguments"):
            return self._scope.argument(name)
        if has(holder.sorts, "call"):
            return self._scope.fact(name)
        if has(holder.sorts, "labels"):
            return self._scope.a_label(name)
        if len(known(holder.sorts)) == 1 and has(holder.sorts, "datetime", "date"):
            return _part_of_time(holder, name)
        return _field(holder, name)

    def subscript(self, node: ast.Subscript) -> Typed:
        holder, key = self.part(node.value), self.part(node.slice)
        if has(holder.sorts, "labels", "arguments") and type(key.constant) is str:
            make = self._scope.a_label if has(holder.sorts, "labels") else self._scope.argument
            return make(key.constant)
        if len(known(holder.sorts)) == 1 and has(holder.sorts, "record") and type(key.constant) is str:
            return _field(holder, key.constant)
        if len(known(holder.sorts)) == 1 and has(holder.sorts, "dict", "list"):
            return _item(holder, key)
        raise Unsound(f"{holder.text!r} is {label(holder.sorts)}, which has no parts in brackets")

    def call(self, node: ast.Call) -> Typed:
        if node.keywords:
            raise Unsound("functions take no named arguments", "Give them by position")
        if isinstance(node.func, ast.Name):
            name = node.func.id
            if name in ("any", "all"):
                return self._each(name, node)
            if name not in functions.FUNCTIONS:
                raise Unsound(
                    f"there is no function {name!r}", did_you_mean(name, functions.FUNCTIONS, "There are")
                )
            return functions.call(self._scope, name, [self.part(one) for one in node.args])
        if isinstance(node.func, ast.Attribute) and node.func.attr in functions.METHODS:
            given = [self.part(one) for one in (node.func.value, *node.args)]
            return functions.call(self._scope, node.func.attr, given)
        remedy = did_you_mean(ast.unparse(node.func), functions.FUNCTIONS, "There are")
        raise Unsound(f"{ast.unparse(node.func)}() is no function of the language", remedy)

    def _each(self, name: str, node: ast.Call) -> Typed:
        """Compile `any(... for x in items)`."""
        shape = f"Write {name}(x > 5 for x in items)"
        made = node.args[0] if len(node.args) == 1 else None
        if not isinstance(made, ast.GeneratorExp):
            raise Unsound(f"{name}() takes a condition for each item", shape)
        (loop, *more), scope = made.generators, self._scope
        if more or loop.ifs or loop.is_async or not isinstance(loop.target, ast.Name):
            raise Unsound(f"{name}() goes over one list, with one name", shape)
        items, variable = self.part(loop.iter), loop.target.id
        if not (len(known(items.sorts)) == 1 and has(items.sorts, "list")):
            raise Unsound(f"{items.text!r} is {label(items.sorts)}, not a list", shape)
        if variable in scope.arguments or variable in functions.FUNCTIONS:
            raise Unsound(f"{variable!r} has another meaning already", "Choose another name")
        scope.variables.append((variable, known(items.sorts)[0].items))
        try:
            condition = self.condition(made.elt, f"what {name}() asks of each item")
        finally:
            scope.variables.pop()
        return Typed(ast.unparse(node), (BOOL,), _quantified(items.run, condition, is_any=name == "any"))


def joined(runs: list[Run], *, is_and: bool) -> Run:
    """Return the function that joins conditions; none is evaluated after one that decides."""
    if len(runs) == 1:
        return runs[0]
    if len(runs) == 2:
        a, b = runs
        return (lambda call: a(call) and b(call)) if is_and else (lambda call: a(call) or b(call))
    together = all if is_and else any
    return lambda call: together(run(call) for run in runs)


def _is_none(left: Typed, sign: ast.cmpop) -> Run:
    if isinstance(sign, ast.Is | ast.Eq):
        expected = True
    elif isinstance(sign, ast.IsNot | ast.NotEq):
        expected = False
    else:
        raise Unsound("None has no order, and nothing in it", "Write `is None` or `is not None`")
    if left.lenient is None and not has(left.sorts, "none", "any"):
        answer = "never None: it is never true" if expected else "never None: it is always true"
        raise Unsound(f"{left.text!r} is {label(left.sorts)}, {answer}", "Leave it out")
    run = left.lenient or left.run
    return lambda call: (run(call) is None) is expected


def _quantified(items: Run, condition: Run, *, is_any: bool) -> Run:
    def each(call: Any) -> bool:
        found = items(call)
        if len(found) > _MOST_ITEMS:
            raise Unanswerable(f"a list of more than {_MOST_ITEMS:,} items")
        # All of them: whether an item is unanswerable must not depend on the order of the list.
        answers = [condition((call, item)) for item in found]
        return any(answers) if is_any else all(answers)

    return each


def _part_of_time(holder: Typed, name: str) -> Typed:
    if name not in _PARTS_OF_TIME or (has(holder.sorts, "date") and name in ("hour", "minute", "date")):
        raise Unsound(
            f"a {label(holder.sorts)} has no {name!r}", did_you_mean(name, _PARTS_OF_TIME, "It has")
        )
    run, text, sort = holder.run, f"{holder.text}.{name}", _PARTS_OF_TIME[name]
    if name == "weekday":
        return Typed(text, (sort,), lambda call: DAYS[run(call).weekday()])
    if name == "date":
        return Typed(text, (sort,), lambda call: run(call).date())
    get = operator.attrgetter(name)
    return Typed(text, (sort,), lambda call: get(run(call)))


def _field(holder: Typed, name: str) -> Typed:
    records = [sort for sort in holder.sorts if sort.name == "record"]
    if not records or any(sort.name not in ("record", "none") for sort in holder.sorts):
        known = f"{holder.text!r} is {label(holder.sorts)}"
        raise Unsound(f"{known}, which has no field {name!r}", "Only classes with declared fields have some")
    found: list[Sort] = []
    is_optional = False
    for sort in records:
        try:
            fields = fields_of_record(sort.of)
        except (NameError, TypeError) as error:
            raise Unsound(f"the annotations of {sort.label} cannot be read: {error}") from None
        if name not in fields:
            raise Unsound(f"{sort.label} has no field {name!r}", did_you_mean(name, fields, "Its fields are"))
        found += fields[name]
        is_optional = is_optional or name in optional_fields(sort.of)
    text, run, sorts = f"{holder.text}.{name}", holder.run, tuple(dict.fromkeys(found))
    conform, lacks = conformer(sorts, text), object()

    def get(call: Any) -> Any:
        value = run(call)
        if isinstance(value, dict):
            return value.get(name, lacks)
        if value is None:
            raise Unanswerable(f"{holder.text} is None")
        return getattr(value, name, lacks)

    def read(call: Any) -> Any:
        value = get(call)
        if value is lacks:
            raise Unanswerable(f"{holder.text} has no {name!r}")
        return conform(value)

    def lenient(call: Any) -> Any:
        value = get(call)
        return None if value is lacks or value is None else conform(value)

    return Typed(text, sorts, read, lenient=lenient if is_optional else None)


def _item(holder: Typed, key: Typed) -> Typed:
    (sort,) = known(holder.sorts)
    wanted = str if sort.name == "dict" else int
    if type(key.constant) is not wanted:
        what = "a text" if wanted is str else "a number"
        raise Unsound(f"{holder.text!r} is a {sort.name}: in brackets stands {what}", "Write it in the rule")
    text, run, at = f"{holder.text}[{key.text}]", holder.run, key.constant
    conform = conformer(sort.items, text)

    def read(call: Any) -> Any:
        try:
            return conform(run(call)[at])
        except (KeyError, IndexError):
            raise Unanswerable(f"there is no {text}") from None

    lenient = (lambda call: conform(run(call)[at]) if at in run(call) else None) if wanted is str else None
    return Typed(text, sort.items, read, lenient=lenient)


def _result(left: Sorts, sign: str, right: Sorts) -> Sort:
    """Return the sort of a calculation. Raises Unsound."""
    names = {sort.name for sort in (*left, *right)}
    if names <= {"int", "float"} or names <= {"int", "decimal"}:
        if "decimal" in names:
            return DECIMAL
        return FLOAT if sign == "/" or "float" in names else INT
    if names <= {"decimal", "float"} and "decimal" in names:
        raise Unsound("calculates with Decimal and float", "Make both Decimal")
    pair = (label(left), sign, label(right))
    times = {
        ("datetime", "-", "datetime"): DURATION,
        ("datetime", "-", "timedelta"): MOMENT,
        ("datetime", "+", "timedelta"): MOMENT,
        ("timedelta", "+", "timedelta"): DURATION,
    }
    if pair in times:
        return times[pair]
    raise Unsound(f"{label(left)} {sign} {label(right)}", "Calculate with numbers, or with times")


def _of_decimals(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: function(Decimal(a) if isinstance(a, int) else a, b)


def _calculated(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if a.__class__ is int and b.__class__ is int and a.bit_length() + b.bit_length() > _MOST_BITS:
        raise Unanswerable(f"calculates with numbers of more than {_MOST_BITS} bits")
    found = function(a, b)
    if found != found:  # noqa: PLR0124 (only NaN differs from itself)
        raise Unanswerable("calculates something that is not a number (NaN)")
    return found


_PARTS: Final[dict[type[ast.expr], Callable[[_Compiler, Any], Typed]]] = {
    ast.Constant: _Compiler.constant,
    ast.List: _Compiler.sequence,
    ast.Tuple: _Compiler.sequence,
    ast.Set: _Compiler.sequence,
    ast.Name: _Compiler.name,
    ast.BoolOp: _Compiler.junction,
    ast.UnaryOp: _Compiler.unary,
    ast.BinOp: _Compiler.arithmetic,
    ast.Compare: _Compiler.comparison,
    ast.Attribute: _Compiler.attribute,
    ast.Subscript: _Compiler.subscript,
    ast.Call: _Compiler.call,
}
