"""The names of accounts: `budget/NAME/WINDOW/SCOPE`, one document for each value of the scope.

The window comes before the value: the accounts of one window are then one range of names, whether it is the
current one or over. Names never change: the same call is charged to the same account in every
process and every life.
"""

from __future__ import annotations

from hashlib import blake2b
from urllib.parse import quote, unquote

from msgspec import Struct

from ninelives.core.governance.verdicts import Call

PREFIX = "budget/"
STORE, AGENT, ACTION, RUN, TREE = SCOPES = ("store", "agent", "action", "run", "tree")
LABEL = "label:"
_SHOWN_CHARACTERS = 120
_LABEL_CHARACTERS = 40
_SHORTENED = "~"


class AccountName(Struct, frozen=True):
    """The parts of an account's name; `value` is shortened if it is very long."""

    budget: str
    window: str
    scope: str
    value: str

    @property
    def whose(self) -> str:
        """Whose account it is, in words."""
        return whose(self.scope, self.value)


def account_name(budget: str, window: str, scope: str, value: str) -> str:
    """Return the name of an account; other parts give another name."""
    if scope == STORE:
        return f"{PREFIX}{budget}/{window}/{STORE}"
    text = _quoted(value)
    if len(text) > _SHOWN_CHARACTERS:
        # Quoting never leaves the mark, so a shortened value is never another value.
        digest = blake2b(value.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        text = f"{text[: _SHOWN_CHARACTERS - 30]}{_SHORTENED}{digest}"
    return f"{PREFIX}{budget}/{window}/{_quoted(scope)}={text}"


def _quoted(text: str) -> str:
    return quote(text, safe=":", errors="surrogatepass").replace(_SHORTENED, "%7E")


def parsed(name: str) -> AccountName | None:
    """Return the parts of an account's name; None if it is no budget's account."""
    parts = name.removeprefix(PREFIX).split("/")
    if not name.startswith(PREFIX) or len(parts) != 3:
        return None
    scope, is_valued, value = parts[2].partition("=")
    if bool(is_valued) == (scope == STORE):
        return None
    return AccountName(parts[0], parts[1], unquote(scope), unquote(value))


def is_label(scope: str) -> bool:
    """Return whether a scope is a label of runs that a name has room for."""
    label = scope.removeprefix(LABEL)
    return scope.startswith(LABEL) and label == label.strip() and 0 < len(_quoted(label)) <= _LABEL_CHARACTERS


def value_of(scope: str, call: Call) -> str | None:
    """Return the value of a scope for a call; None if it is not known."""
    if scope.startswith(LABEL):
        # Runs without the label share one account: leaving out a label frees no run of its budget.
        return call.labels.get(scope.removeprefix(LABEL), "")
    if scope == TREE:
        return call.root or (call.run if call.parent is None else None)
    return {STORE: "", AGENT: call.agent, ACTION: call.action, RUN: call.run}[scope]


def whose(scope: str, value: str) -> str:
    """Return whose account it is, in words: "of agent 'shop'"."""
    if scope == STORE:
        return "of this store"
    if scope == TREE:
        return f"of run {value!r} with its children"
    if not scope.startswith(LABEL):
        return f"of {scope} {value!r}"
    label = scope.removeprefix(LABEL)
    return f"of label {label}={value}" if value else f"of runs without the label {label!r}"


def waits_for(budget: str, whose: str) -> str:
    """Return what a run that is over a budget waits for, in words: such runs are found by it."""
    return f"budget {budget!r} {whose}"
