"""The normal form of a question: near-identical wordings of one question have the same one (`near="words"`).

It undoes only what cannot change what is asked: spaces between words, the capital of a first word such as
"What", the mark at the end of a question, contractions that stand for one thing, "please" before a request, a
greeting before it and thanks after it. Digits, symbols, names, order, negation, articles and every other word
stay as they are. What is not plain prose (quotes, code, several lines, fewer than three words) stays whole.
A rule that might make two questions equal that ask for different things has no place here: it is better to
ask the model once more (docs/decisions/0044).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

FEWEST_WORDS: Final = 3
_PROSE: Final = re.compile(r"[^\W_][\w ,.;?!'\u2019$€£%°+/()&@#:-]*")
"""No quotes, backticks, braces, brackets, line breaks: those are content, in which every character counts."""
_QUOTING: Final = re.compile(r"(?<!\w)'|'(?!\w)")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split("|"))


_FOLDED: Final = _words(
    "what|what's|what're|how|why|when|where|where's|which|whose|is|are|am|was|were|do|does|did|have|"
    "has|had|could|would|should|please|explain|show|give|list|tell|describe|summarize|summarise|"
    "compare|find|the|this|that|these|those|there|my|your|our|their|his|it|we|you|they|he|she|in|on|"
    "at|for|if|after|before|hi|hello|hey"
)
"""First words whose capital says nothing: they are no names. ("Will" and "May" may be.)"""
_ASKING: Final = _words(
    "what|what's|how|why|when|where|where's|which|whose|who|who's|is|are|am|was|were|do|does|did|"
    "have|has|had|can|could|would|should|will|isn't|aren't|wasn't|weren't|don't|doesn't|didn't|"
    "haven't|hasn't|hadn't|can't|couldn't|wouldn't|shouldn't|won't"
)
"""First words after which a question mark at the end adds nothing."""
_REQUESTS: Final = _words("explain|show|give|list|tell|describe|summarize|summarise|compare|find|define")
_ABOUT_TEXT: Final = re.compile(
    r"\b(?:apostrophe|capital letters?|character|comma|contraction|glob|grammar|letter|match|matches|mean"
    r"|means|named|pattern|phrase|pronounced?|punctuation|quote[sd]?|regexp?|said|say|says|sentence|sign|spell"
    r"|spell(?:ed|ing|s)|spelt|string|sung|synonym|text|titled?|translat\w+|wildcard|words?"
    r"|write|writes|written|wrote|song|lyrics)\b",
    re.IGNORECASE,
)
"""A question about a text means each of its characters."""
_NEGATED: Final = re.compile(
    r"\b(is|are|was|were|do|does|did|have|has|had|could|would|should|must|need)n't\b", re.IGNORECASE
)
_SHORT: Final = (
    (re.compile(r"\bcan't\b"), "cannot"),
    (re.compile(r"\bCan't\b"), "Cannot"),
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r"\bWon't\b"), "Will not"),
    (re.compile(r"\b(I)'m\b"), r"\1 am"),
    (re.compile(r"\b([Yy]ou|[Ww]e|[Tt]hey)'re\b"), r"\1 are"),
    (re.compile(r"\b(I|[Yy]ou|[Ww]e|[Tt]hey)'ve\b"), r"\1 have"),
    (re.compile(r"\b(I|[Yy]ou|[Ww]e|[Tt]hey|[Hh]e|[Ss]he|[Ii]t)'ll\b"), r"\1 will"),
    # Before an article "has" makes no sentence. Elsewhere 's stays: "what's left" is two questions.
    (re.compile(r"\b([Ww]hat|[Ww]here)'s (the|a|an|my|your|our)\b"), r"\1 is \2"),
)
_PRONOUN: Final = re.compile(
    r"\bi(?='m\b|'ve\b|'ll\b)|(?<=\b[Hh]ow do )i(?= (?:add|cancel|change|close|contact|create|delete|find|get"
    r"|install|make|open|order|pay|remove|reset|return|send|set|sign|start|stop|track|update|use)\b)"
)
"""A lone i is the pronoun only where no variable can be: "how do i and v relate" is about a coil."""
_THANKS: Final = re.compile(r"(?<=[?.]) (?:thanks|thank you)[.!]?$", re.IGNORECASE)
_GREETING: Final = re.compile(
    r"(?:hi|hello|hey)[,!] (?=(?:how|why|when|where|please|can|could)\b)", re.IGNORECASE
)
_PLEASE: Final = re.compile(
    r"(?:(?:could|can|would)\syou\s)?please,?\s"
    r"(?=(?:explain|show|give|list|tell|describe|summari[sz]e|compare|find)\b)",
    re.IGNORECASE,
)
_TAG: Final = "$"
_INSIDE: Final = frozenset({"record", "tuple", "set", "frozenset"})
"""Tagged values whose parts may be questions. Bytes, times, numbers, enums and secrets stay as they are."""


def normal_form(text: str) -> str:
    """Return the normal form of a text; a text that is no plain prose is its own."""
    found = unicodedata.normalize("NFC", text).replace("\u2019", "'").strip(" ")
    if not _is_prose(found):
        return text
    found = " ".join(found.split())
    found = found[_end_of(_GREETING, found) :]
    found = _without_end(found)
    found = found[_end_of(_PLEASE, found) :]
    found = _PRONOUN.sub("I", found)
    found = _NEGATED.sub(r"\1 not", found)
    for short, long in _SHORT:
        found = short.sub(long, found)
    first, space, rest = found.partition(" ")
    if first.lower() in _FOLDED and first[1:].islower():
        first = first.lower()
    return f"{first}{space}{rest}"


def _is_prose(text: str) -> bool:
    return (
        _PROSE.fullmatch(text) is not None
        and len(text.split()) >= FEWEST_WORDS
        and ": " not in text
        and not text.endswith(":")
        and _QUOTING.search(text) is None
        and _ABOUT_TEXT.search(text) is None
    )


def _without_end(text: str) -> str:
    """Drop thanks after the question, and the mark at its end if its first word already asks or requests."""
    text = _THANKS.sub("", text)
    first = text.split(" ", 1)[0].lower().rstrip(",")
    if first in _ASKING and re.search(r"[^\W_]\?$", text):
        return text[:-1]
    if first in _ASKING | _REQUESTS | {"please"} and re.search(r"[^\W_]{2}\.$", text):
        return text[:-1]
    return text


def _end_of(courtesy: re.Pattern[str], text: str) -> int:
    found = courtesy.match(text)
    return found.end() if found is not None else 0


def normal_tree(tree: Any) -> Any:
    """Return canonical arguments (decoded JSON) with every text of a value in its normal form; keys stay."""
    if type(tree) is str:
        return normal_form(tree)
    if type(tree) is list:
        return [normal_tree(one) for one in tree]
    if type(tree) is not dict:
        return tree
    if _TAG in tree:
        return {**tree, "v": normal_tree(tree["v"])} if tree[_TAG] in _INSIDE else tree
    return {name: normal_tree(one) for name, one in tree.items()}
