"""Conditions joined by `and` that exclude each other: `cents > 100 and cents < 50` can never be true."""

from __future__ import annotations

import ast
from collections import defaultdict

from msgspec import Struct

from ninelives.governance.policy.language.comparing import MIRRORED, SIGNS
from ninelives.governance.policy.language.errors import Unsound


class _Bounds(Struct):
    """What is known of one value: it is at least `low` and at most `high`; itself not, where that is open."""

    low: float | None = None
    high: float | None = None
    is_low_open: bool = False
    is_high_open: bool = False

    def narrow(self, sign: str, constant: float) -> None:
        """Add one comparison."""
        if sign in (">", ">=", "==") and (self.low is None or constant >= self.low):
            is_same = constant == self.low
            self.low, self.is_low_open = constant, sign == ">" or (is_same and self.is_low_open)
        if sign in ("<", "<=", "==") and (self.high is None or constant <= self.high):
            is_same = constant == self.high
            self.high, self.is_high_open = constant, sign == "<" or (is_same and self.is_high_open)

    @property
    def is_empty(self) -> bool:
        """Whether no number fits."""
        if self.low is None or self.high is None:
            return False
        return self.low > self.high or (self.low == self.high and (self.is_low_open or self.is_high_open))


def check(tree: ast.expr) -> None:
    """Refuse parts joined by `and` that can never be true together. Raises Unsound."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            _check_joined(node.values, node)
        elif isinstance(node, ast.Compare):
            _check_joined([node], node)


def _check_joined(parts: list[ast.expr], node: ast.expr) -> None:
    bounds: dict[str, _Bounds] = defaultdict(_Bounds)
    equal: dict[str, str] = {}
    for part in parts:
        if not isinstance(part, ast.Compare):
            continue
        sides = [part.left, *part.comparators]
        for left, sign, right in zip(sides, part.ops, sides[1:], strict=False):
            _add(bounds, equal, left, sign, right)
    for name, found in bounds.items():
        if found.is_empty:
            raise Unsound(
                f"what it says of {name} can never be true", "Write `or`, or turn a comparison round", node
            )


def _add(
    bounds: dict[str, _Bounds], equal: dict[str, str], left: ast.expr, sign: ast.cmpop, right: ast.expr
) -> None:
    if type(sign) not in SIGNS:
        return
    shown = SIGNS[type(sign)][0]
    if isinstance(left, ast.Constant):
        left, shown, right = right, MIRRORED[shown], left
    if not isinstance(right, ast.Constant) or isinstance(left, ast.Constant):
        return
    name, value = ast.unparse(left), right.value
    if type(value) in (int, float):
        bounds[name].narrow(shown, value)  # type: ignore[arg-type]
    elif type(value) is str and shown == "==" and equal.setdefault(name, value) != value:
        raise Unsound(f"{name} cannot be both {equal[name]!r} and {value!r}", "Write `or`, or `in [...]`")
