"""Random policies judge random calls, most of them wrong in some way; an oracle says what is right.

The oracle knows each condition as a plain Python function with its own checks of types, and the rules by
which verdicts are joined. It shares no code with the product. What counts: a call that must be denied or
stopped must never be allowed or rewritten; beyond that, every verdict must be the same.

    python -m tests.governance.fuzz_policy --cases 100000
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from ninelives.core.governance.verdicts import Allow, Ask, Call, Deny, Judgement, Rewrite
from ninelives.governance.policy import combined, judge
from ninelives.governance.policy.functions import FunctionPolicy
from tests.governance.policy_shop import ARGUMENTS, NOON, Line, Order, steps

WORDS = {Allow: "allow", Deny: "deny", Ask: "ask", Rewrite: "rewrite"}
NEVER = threading.Event()


class Unknown(Exception):
    """The oracle: there is no answer."""


class Evil:
    """Claims everything, and raises what nobody expects."""

    def __init__(self, error: type[BaseException] | None) -> None:
        self.error = error

    def __eq__(self, other: object) -> bool:
        return self._answer()

    def __gt__(self, other: object) -> bool:
        return self._answer()

    __lt__ = __ge__ = __le__ = __gt__

    def __hash__(self) -> int:
        return hash(5000) if self._answer() else 0

    def __len__(self) -> int:
        return int(self._answer())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._answer()

    def _answer(self) -> bool:
        if self.error is not None:
            raise self.error("evil")
        return False


class EvilText(str):
    """A text that is equal to nothing, and contains nothing."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return False

    def __contains__(self, other: object) -> bool:
        return False

    def startswith(self, *_: Any) -> bool:
        return False

    __hash__ = str.__hash__


def need(value: Any, *kinds: type) -> Any:
    """The oracle's own check of a type. NaN, and texts of more than a million characters, have no answer."""
    if isinstance(value, bool) and bool not in kinds:
        raise Unknown
    if isinstance(value, Evil) or not isinstance(value, kinds):
        raise Unknown
    if isinstance(value, float | Decimal) and not value == value:  # noqa: PLR0124
        raise Unknown
    if isinstance(value, str):
        if len(value) > 1_000_000:
            raise Unknown
        return "".join(str.__iter__(value))
    return value


def get(call: Call, name: str, *kinds: type) -> Any:
    return need(raw(call, name), *kinds)


def raw(call: Call, name: str) -> Any:
    if name not in call.args:
        raise Unknown
    return call.args[name]


def currency(call: Call) -> str:
    found: str = get(call, "currency", str)
    if found not in ("EUR", "USD"):
        raise Unknown
    return found


def tenant(call: Call) -> str:
    if "tenant" not in call.labels:
        raise Unknown
    return call.labels["tenant"]


def order(call: Call) -> Order:
    return need(raw(call, "order"), Order)  # type: ignore[no-any-return]


def moment(call: Call) -> dt.datetime:
    found: dt.datetime = get(call, "at", dt.datetime)
    if found.tzinfo is None or call.now is None:
        raise Unknown
    return found


def memo_text(call: Call) -> str:
    found = get(call, "memo", str, type(None))
    if found is None:
        raise Unknown
    return str(found)


Reference = Callable[[Call], bool]
CONDITIONS: dict[str, list[tuple[str, Reference]]] = {
    "refund": [
        ("cents > 1_000", lambda c: get(c, "cents", int) > 1000),
        ("cents == 5_000", lambda c: get(c, "cents", int) == 5000),
        ("cents in [5, 500, 5_000]", lambda c: get(c, "cents", int) in (5, 500, 5000)),
        ("cents * 2 <= 1_000", lambda c: small(get(c, "cents", int)) * 2 <= 1000),
        ("not cents <= 10", lambda c: not get(c, "cents", int) <= 10),
        ("currency == 'USD'", lambda c: currency(c) == "USD"),
        ("order == 'drop'", lambda c: get(c, "order", str) == "drop"),
        ("'drop' in order.lower()", lambda c: "drop" in short(get(c, "order", str)).lower()),
        ("startswith(order, 'o-')", lambda c: get(c, "order", str)[:2] == "o-"),
        ("len(order) > 2", lambda c: len(get(c, "order", str)) > 2),
        ("labels.tenant == 'acme'", lambda c: tenant(c) == "acme"),
        ("labels.tenant != 'acme'", lambda c: tenant(c) != "acme"),
        ("'tenant' in labels and labels.tenant == 'acme'", lambda c: c.labels.get("tenant") == "acme"),
        ("tainted('web')", lambda c: "web" in c.taint),
        ("order == 'drop' or cents > 1_000",
         lambda c: get(c, "order", str) == "drop" or get(c, "cents", int) > 1000),
        ("cents > 1_000 and labels.tenant == 'acme'",
         lambda c: get(c, "cents", int) > 1000 and tenant(c) == "acme"),
    ],
    "wire": [
        ("amount > 10.1", lambda c: get(c, "amount", Decimal, int) > Decimal("10.1")),
        ("amount == 10.1", lambda c: get(c, "amount", Decimal, int) == Decimal("10.1")),
        ("memo is None", lambda c: get(c, "memo", str, type(None)) is None),
        ("memo == 'x'", lambda c: get(c, "memo", str, type(None)) == "x"),
        ("memo > 'm'", lambda c: memo_text(c) > "m"),
        ("memo is not None and contains(memo, 'x')",
         lambda c: get(c, "memo", str, type(None)) is not None and "x" in memo_text(c)),
        ("at > now", lambda c: moment(c) > c.now),  # type: ignore[operator]
    ],
    "ship": [
        ("order.cents > 1_000", lambda c: need(order(c).cents, int) > 1000),
        ("order.note is None", lambda c: need(order(c).note, str, type(None)) is None),
        ("any(line.count > 10 for line in order.lines)", lambda c: any(counts(c))),
        ("all(line.count > 10 for line in order.lines)", lambda c: all(counts(c))),
        ("'heavy' in tags", lambda c: "heavy" in [need(tag, str) for tag in get(c, "tags", list, tuple)]),
    ],
    "untyped": [
        ("thing == 5", lambda c: same(raw(c, "thing"), 5)),
        ("thing > 5", lambda c: same(raw(c, "thing"), 5, "above")),
        ("thing == 'drop'", lambda c: same(raw(c, "thing"), "drop")),
        ("thing is None", lambda c: plain(raw(c, "thing")) is None),
    ],
}  # fmt: skip


def small(number: int) -> int:
    if number.bit_length() + 2 > 4096:
        raise Unknown
    return number


def short(text: str) -> str:
    if len(text) > 100_000:
        raise Unknown
    return text


def counts(call: Call) -> list[bool]:
    lines = need(order(call).lines, list, tuple)
    if len(lines) > 10_000:
        raise Unknown
    return [need(need(line, Line).count, int) > 10 for line in lines]


def plain(value: Any) -> Any:
    return need(value, object, bool) if not isinstance(value, Evil) else value


def same(value: Any, other: Any, how: str = "equal") -> bool:
    if value is None and how == "equal":
        return False
    kinds = (int, float, Decimal) if isinstance(other, int) else (str,)
    found = need(value, *kinds)
    return bool(found > other if how == "above" else found == other)


LINES: list[Line] = [Line("a", 20), Line("b", 1)]
NUMBERS: list[Any] = [5, "5000", None, 5000]
SEVERAL: list[Any] = [LINES, [], [3], None, LINES * 2]
LONG: str = "drop" * 300_000
VALUES: list[Callable[[random.Random], Any]] = [
    lambda r: r.choice([0, 5, 10, 500, 1000, 1001, 5000, -1]),
    lambda r: r.choice([True, False, None, b"drop", ["heavy"], {"cents": 5000}, ()]),
    lambda r: r.choice(["5000", "5,000", "drop", "DROP", "drop ", "USD", "usd", "", "o-1", "x", "z", "acme"]),
    lambda r: r.choice([float("nan"), float("inf"), -float("inf"), 5000.0, 0.1, 1e308]),
    lambda r: r.choice([Decimal("NaN"), Decimal("sNaN"), Decimal("10.1"), Decimal("1e400"), Decimal(-3)]),
    lambda r: r.choice([10**50, -(10**50), 10**2000, 1 << 5000]),
    lambda r: EvilText(r.choice(["drop", "o-1", "USD", "x"])),
    lambda r: Evil(r.choice([None, ValueError, SystemExit, RecursionError, GeneratorExit, MemoryError])),
    lambda r: r.choice([NOON, NOON + dt.timedelta(days=1), NOON.replace(tzinfo=None), NOON.date()]),
    lambda r: Order("o", r.choice(NUMBERS), r.choice(SEVERAL)),
    lambda r: r.choice([["heavy"], ["heavy", 3], [EvilText("heavy")], ("light",), "heavy", [None]]),
    lambda _: LONG,
]


def random_call(r: random.Random) -> Call:
    """Return a call; every second argument is of a random kind, and some are missing."""
    action = r.choice(list(CONDITIONS))
    args = dict(ARGUMENTS[action])
    for name in list(args):
        if r.random() < 0.4:
            args[name] = r.choice(VALUES)(r)
        elif r.random() < 0.03:
            del args[name]
    return Call(
        action=action,
        kind="action",
        args=args,
        run="r",
        agent="a",
        labels=r.choice([{}, {"tenant": "acme"}, {"tenant": "other"}, {"tenant": ""}]),
        taint=r.choice([frozenset(), frozenset({"web"})]),
        now=r.choice([NOON, NOON, None]),
    )


# Policies ----------------------------------------------------------------------------------------


class Rule(Struct, frozen=True):
    """A rule of the oracle; `caps` is what it rewrites `cents` to."""

    action: str
    do: str
    when: Reference | None
    approvals: int = 1
    caps: int | None = None


class Oracle(Struct, frozen=True):
    """What is right for one policy: its rules and default, or the fixed answer of a function."""

    rules: tuple[Rule, ...] = ()
    default: str = "deny"
    answer: str = ""

    def word(self, call: Call, *, is_again: bool = False) -> tuple[str, int]:
        """Return the verdict, and how many people are asked."""
        if self.answer:
            return self.answer, 1
        said: list[Rule] = []
        is_unknown = False
        for rule in self.rules:
            if rule.action != call.action:
                continue
            try:
                if rule.when is None or rule.when(call):
                    said.append(rule)
            except BaseException:
                is_unknown = True
        words = {rule.do for rule in said}
        if "deny" in words:
            return "deny", 0
        if is_unknown:
            return "error", 0
        if "ask" in words:
            return "ask", max(rule.approvals for rule in said if rule.do == "ask")
        caps = {rule.caps for rule in said if rule.do == "rewrite"}
        if caps:
            if len(caps) > 1:
                return "error", 0
            (cap,) = caps
            if is_again:
                return ("rewrite", 0) if call.args.get("cents") == cap else ("error", 0)
            made = Call(**{name: getattr(call, name) for name in call.__struct_fields__}
                        | {"args": {**call.args, "cents": cap}})  # fmt: skip
            again, asked = self.word(made, is_again=True)
            return ("rewrite", 0) if again in ("allow", "rewrite") else (again, asked)
        return ("allow", 0) if "allow" in words else (self.default, 0)


def random_file(r: random.Random) -> tuple[str, Oracle]:
    """Return a policy's text, and the oracle for it."""
    default = r.choice(["allow", "allow", "deny"])
    parts, rules = [f'[policy]\nname = "fuzz"\ndefault = "{default}"\n'], []
    for number in range(r.randint(1, 6)):
        action = r.choice(list(CONDITIONS))
        do = r.choice(["deny", "deny", "ask", "allow", "allow", "rewrite"])
        if do == "rewrite" and action != "refund":
            do = "deny"
        text, when = r.choice([("", None), *CONDITIONS[action] * 3])
        rule = Rule(action, do, when, r.choice([1, 2]), r.choice([100, 900]) if do == "rewrite" else None)
        more = f"approvals = {rule.approvals}\n" if do == "ask" else ""
        more += f"args = {{ cents = {rule.caps} }}\n" if do == "rewrite" else ""
        more += f"when = {json.dumps(text)}\n" if text else ""
        parts.append(f'[[rule]]\nid = "r{number}"\nactions = ["{action}"]\ndo = "{do}"\n{more}')
        rules.append(rule)
    return "".join(parts), Oracle(tuple(rules), default)


def _raises(error: type[BaseException]) -> Callable[[Call], Any]:
    def gate(_: Call) -> Any:
        raise error("fuzz")

    return gate


FUNCTIONS: list[tuple[Callable[[Call], Any], str]] = [
    (lambda _: Allow(), "allow"),
    (lambda _: Allow(), "allow"),
    (lambda _: Deny("no"), "deny"),
    (lambda _: Ask(), "ask"),
    (lambda _: None, "error"),
    (lambda _: True, "error"),
    (lambda _: "allow", "error"),
    (lambda _: Allow, "error"),
    (lambda _: Judgement(Allow()), "error"),
    (lambda _: Rewrite({"nothing": 1}), "error"),
    *((_raises(error), "error") for error in (ValueError, SystemExit, KeyboardInterrupt, RecursionError)),
]
HANGS: tuple[Callable[[Call], Any], str] = (lambda _: NEVER.wait(0.01) or Allow(), "error")
_ORDER = MappingProxyType({"allow": 0, "rewrite": 1, "ask": 2, "error": 3, "deny": 4})


def random_policies(r: random.Random) -> tuple[combined.Policies, list[Oracle]]:
    """Return some policies as one, and their oracles."""
    members: list[Any] = []
    oracles: list[Oracle] = []
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        if r.random() < 0.6 or (not members and r.random() < 0.5):
            text, oracle = random_file(r)
            members.append(judge.load_policy(text, STEPS))
        else:
            hangs = r.random() < 0.03
            function, word = HANGS if hangs else r.choice(FUNCTIONS)
            members.append(FunctionPolicy(function, "f", 0.001 if hangs else 5))
            oracle = Oracle(answer=word)
        oracles.append(oracle)
    r.shuffle(order := list(range(len(members))))
    return combined.Policies([members[at] for at in order]), [oracles[at] for at in order]


STEPS = steps()


def expected(oracles: list[Oracle], call: Call) -> str:
    """Return the strictest of what the oracles say; what one rewrites, the others judge again."""
    words = [one.word(call)[0] for one in oracles]
    strictest = max(words, key=_ORDER.__getitem__)
    if strictest != "rewrite" or len(oracles) == 1:
        return strictest
    caps = caps_of(oracles, call)
    if len(caps) > 1:
        return "error"
    args = {**call.args, "cents": next(iter(caps))}
    made = Call(**{name: getattr(call, name) for name in call.__struct_fields__} | {"args": args})
    again = max((one.word(made)[0] for one in oracles), key=_ORDER.__getitem__)
    if again == "rewrite" and caps_of(oracles, made) != caps:
        return "error"
    return "rewrite" if again in ("allow", "rewrite") else again


def caps_of(oracles: list[Oracle], call: Call) -> set[int | None]:
    """Return what `cents` is rewritten to."""
    return {
        rule.caps
        for one in oracles
        for rule in one.rules
        if rule.do == "rewrite" and rule.action == call.action and (rule.when is None or rule.when(call))
    }


class Fuzzed(Struct):
    """What a campaign found: verdicts by word, those that let a call through, and other differences."""

    cases: int
    verdicts: dict[str, int]
    open: list[str]
    different: list[str]


def fuzz(cases: int, seed: int = 9, *, stop: bool = False) -> Fuzzed:
    """Judge so many random calls; with `stop`, only until the first finding."""
    r, verdicts = random.Random(seed), Counter[str]()
    found = Fuzzed(0, {}, [], [])
    while found.cases < cases:
        policies, oracles = random_policies(r)
        for _ in range(20):
            call, found.cases = random_call(r), found.cases + 1
            judgement = policies.judge(call)
            word = "error" if judgement.error else WORDS[type(judgement.verdict)]
            if judgement.error and type(judgement.verdict) is not Deny:
                word = WORDS[type(judgement.verdict)]
            verdicts[word] += 1
            right = expected(oracles, call)
            if word != right:
                what = f"{word} instead of {right}: {call.action} {judgement.error} {policies.text}"
                passes = word in ("allow", "rewrite") and right not in ("allow", "rewrite")
                (found.open if passes else found.different).append(what)
        if stop and (found.open or found.different):
            break
    found.verdicts = dict(verdicts)
    return found


def main() -> int:
    """Run a campaign, and print what it found."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cases", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=9)
    given = options.parse_args()
    found = fuzz(given.cases, given.seed)
    for what in (found.open + found.different)[:5]:
        print(what)
    words = ", ".join(f"{count:,} {word}" for word, count in sorted(found.verdicts.items()))
    print(
        f"{found.cases:,} verdicts ({words}): {len(found.open)} let through, "
        f"{len(found.different)} otherwise different"
    )
    return 1 if found.open or found.different else 0


if __name__ == "__main__":
    sys.exit(main())
