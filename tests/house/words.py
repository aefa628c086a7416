"""Words to avoid, in names and in prose, and how often each is still used.

Names are those of modules, classes, functions, parameters, variables and attributes, in their parts:
`told_at` has the part `told`. Prose is docstrings, comments and messages. `words.toml` holds the counts,
which only fall.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from tests.house.source import House, Module

COUNTS = Path(__file__).with_name("words.toml")


class Word(Struct, frozen=True):
    """A word to avoid, in all its forms, and the words to use instead.

    `within` are the packages and modules where it has a meaning to avoid; `but` are names that may have it,
    everywhere or, as `module: name`, in one module.
    """

    forms: tuple[str, ...]
    use: str
    within: tuple[str, ...] = ("ninelives",)
    but: tuple[str, ...] = ()


def _word(forms: str, use: str, within: str = "ninelives", but: str = "") -> Word:
    return Word(tuple(forms.split(", ")), use, tuple(within.split(", ")), tuple(but.split(", ")))


_EVERYWHERE = [
    _word("told", "reported, delivered"),
    _word("tell, tells, telling", "report, notify, return"),
    _word("hear, hears, heard, hearing", "poll, receive, on_news"),
    _word("whoever, whomever", "the worker, the caller, the process that"),
    _word("anew", "again"),
    _word("how-manieth", "n-th"),
    _word("befall, befalls, befell", "happen to"),
    _word("mend, mends, mended", "repair, fix"),
    _word("heed, heeds, heeded", "obey, check"),
    _word("whereabouts", "host, position"),
    _word("thereof, therein, thereupon, hitherto", "of it, in it, then, until now"),
    _word("newsroom", "news reader"),
    _word("cradle", "fork server"),
    _word("keyring", "keys"),
    _word("outlet", "output buffer"),
    _word("chronicle", "recovery recorder"),
    _word("lent", "of the run's own (a thread)"),
    _word("kin, strays", "ancestry, descendants"),
    _word("facade", "runtime, store"),
    _word("anybody, somebody", "a caller, a person, a process"),
]
NAMES = [
    *_EVERYWHERE,
    _word("ear, ears", "wake-ups"),
    _word("ward, wards", "worker process"),
    _word("witness, witnesses", "recorder, clock reading, proof"),
    _word("look, looks, looked, looking", "check, poll", but="look_up, _look_up, looked_up"),
    _word(
        "asked",
        "fingerprint, request",
        # A kind of record; public: `item.asked`, `script.asked`; fields of `ninelives check --json`.
        but="ASKED, ninelives.runtime.inbox: asked, ninelives.runtime.blocking: asked, "
        "ninelives.testing.script: asked, ninelives.ops.check: asked_again, "
        "ninelives.cli.commands.check: asked_again",
    ),
    _word(
        "alone",
        "solo (a suspect), single",
        but="ninelives.core.model.run: is_alone",  # a column of the stores, a field of snapshots
    ),
    _word("bear, birth, births", "create_here, creation"),
    _word("matter", "request"),
    _word("hardy", "a word that says what it does"),
    _word("line, lines", "connection, pool", "ninelives.stores.postgres, ninelives.stores.shared"),
    _word(
        "place, places",
        "path, position",
        but="ninelives.views.records_text: place",  # public: `entry.place` of `run.history()`
    ),
    _word(
        "order, orders",
        "message, command",
        "ninelives.chaos.process, ninelives.chaos.trial, ninelives.supervisor",
    ),
]
PROSE = [
    *_EVERYWHERE,
    _word("who, whom", "the worker, the caller, the process that (people may stay)"),
    _word("for ever", "forever, without end"),
    _word("nobody", "no process, no worker"),
]


def names(house: House) -> dict[str, list[str]]:
    """Return where names have words to avoid, by word; a name counts once in each module."""
    found = defaultdict(list)
    for module in house.modules.values():
        for name in sorted(set(_given_in(module))):
            parts = set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name).lower().split())
            for word in NAMES:
                at = f"{module.name}: {name}"
                if {name, at}.isdisjoint(word.but) and _is_within(module, word) and parts & set(word.forms):
                    found[word.forms[0]].append(at)
    return found


def _is_within(module: Module, word: Word) -> bool:
    return any(f"{module.name}.".startswith(f"{package}.") for package in word.within)


def _given_in(module: Module) -> Iterator[str]:
    """Yield the names that a module gives: its own, and those of what is in it."""
    yield module.name.rpartition(".")[2]
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def prose(house: House) -> dict[str, list[str]]:
    """Return where docstrings, comments and messages have words to avoid, by word."""
    found = defaultdict(list)
    for module in house.modules.values():
        for line, text in _texts_in(module):
            for word in PROSE:
                for _ in re.findall(rf"\b({'|'.join(word.forms)})\b", text):
                    found[word.forms[0]].append(f"{module.name}: {line}")
    return found


def _texts_in(module: Module) -> Iterator[tuple[int, str]]:
    """Yield strings with a space in them, and comments: in lower case, with single spaces."""
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, " ".join(node.value.lower().split())
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lower()


def grown(table: str, found: dict[str, list[str]], words: Iterable[Word]) -> list[str]:
    """Return the words that are used more often than `words.toml` allows, with the words to use."""
    most = read_counts()[table]
    uses = {word.forms[0]: word.use for word in words}
    return [
        f"{word}, {len(where)} times instead of {most.get(word, 0)}; use: {uses[word]}; at {', '.join(where)}"
        for word, where in found.items()
        if len(where) > most.get(word, 0)
    ]


def read_counts() -> dict[str, dict[str, int]]:
    """Return how often each word may be used in names and in prose; a word that is not there: never."""
    return tomllib.loads(COUNTS.read_text("utf-8"))


def lower_counts(house: House) -> None:
    """Write down which words are used less often now; what is used more often stays as it was."""
    known = read_counts()
    about = COUNTS.read_text("utf-8").partition("[names]")[0]
    for table, found in (("names", names(house)), ("prose", prose(house))):
        lower = {word: min(most, len(found.get(word, ()))) for word, most in known[table].items()}
        rows = [f'"{word}" = {most}\n' for word, most in lower.items() if most]
        about += f"[{table}]\n{''.join(rows)}\n"
    COUNTS.write_text(f"{about.rstrip()}\n")
