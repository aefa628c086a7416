"""Which text of a call's arguments is the question; everything else has to be equal."""

from __future__ import annotations

from typing import Any, Final

_TAG: Final = "$"
FEWEST_WORDS: Final = 3
_HERE: Final = {_TAG: "question"}
"""What stands in the place of the question: no argument can be encoded as this."""


def question_of(arguments: Any, of: str = "") -> tuple[str, Any] | None:
    """Return the question and the arguments without it; None if no text has three words.

    `arguments` are canonical arguments, decoded from JSON: names to values. The question is the last text of
    at least three words in the argument named `of`, or in all: in a list of messages, what was said last.
    """
    if not isinstance(arguments, dict) or (of and of not in arguments):
        return None
    found = _last_in(arguments[of] if of else arguments)
    if found is None:
        return None
    text, path = found
    path = (of, *path) if of else path
    return text, _without(arguments, path)


def _last_in(tree: Any) -> tuple[str, tuple[str | int, ...]] | None:
    """Return the last text that can be a question, and the way to it."""
    if type(tree) is str:
        return (tree, ()) if len(tree.split()) >= FEWEST_WORDS else None
    inner: list[tuple[str | int, Any]] = []
    if type(tree) is list:
        inner = list(enumerate(tree))
    elif type(tree) is dict:
        inner = [("v", tree.get("v"))] if _TAG in tree and not isinstance(tree.get("v"), str) else []
        inner = inner if _TAG in tree else list(tree.items())
    for at, one in reversed(inner):
        found = _last_in(one)
        if found is not None:
            return found[0], (at, *found[1])
    return None


def _without(tree: Any, path: tuple[str | int, ...]) -> Any:
    if not path:
        return _HERE
    if isinstance(tree, list):
        return [_without(one, path[1:]) if at == path[0] else one for at, one in enumerate(tree)]
    return {name: _without(one, path[1:]) if name == path[0] else one for name, one in tree.items()}
