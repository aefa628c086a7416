"""Guards: what must not differ between two questions if the answer to one is to stand for the other.

Embeddings hardly see digits, negation and order: "refund order 12" and "refund order 13" have a cosine of
0.94. A guard only ever refuses. What all of them let through is still no hit: the bound decides that.

Some guards know English words (`words`). Those for numbers, names, symbols, order and for the one
word that is another work in every language that puts spaces between words.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

from msgspec import Struct

from ninelives.core.model_calls.meaning import words
from ninelives.core.model_calls.normal_form import normal_form

_TOKEN: Final = re.compile(r"[^\W_]+(?:['.,:/_-][^\W_]+)*|[^\w\s.,;:!?'\"()-]|[-+](?=\d)")
_MARK: Final = re.compile(r"[\w'\u2019]+|[^\w\s]")
_HOW: Final = re.compile(
    r"^(?:how (?:do|can|could|would|should|might) (?:i|we|you|one|people)"
    r"|what (?:is|are) the (?:best )?ways? to|what is a (?:good )?way to|is there (?:a|any) way to"
    r"|what (?:should|can|do) i (?:do )?to) ",
    re.IGNORECASE,
)
_NEGATED: Final = re.compile(r"n't\b")
_CONTRACTED: Final = re.compile(r"'(?:s|re|m|ve|ll|d)\b")
_QUOTED: Final = re.compile(r"[\"`“”«»]([^\"`“”«»]*)[\"`“”«»]")
_ENDINGS: Final = (
    "ization", "isation", "ations", "ation", "ements", "ement", "ingly", "ings", "ing", "ies", "ied", "ers",
    "er", "ed", "es", "ly", "s", "e", "y",
)  # fmt: skip
_MOSTLY_SHARED: Final = 1.5
"""If the words that are shared are this many times those that are not, the others are what is asked."""


class Read(Struct, frozen=True):
    """A question as the guards read it.

    `normal` is its normal form, `wording` that one's words and marks, `tokens` all its words in order,
    `content` their stems without glue.
    """

    normal: str
    wording: tuple[str, ...]
    tokens: tuple[str, ...]
    content: tuple[str, ...]
    numbers: tuple[str, ...]
    names: tuple[str, ...]
    symbols: tuple[str, ...]
    quoted: tuple[str, ...]


def veto(question: str, cached: str) -> str | None:
    """Return what differs so that one answer must not stand for both questions; None if no guard sees any."""
    one, other = read(question), read(cached)
    if one.normal == other.normal:
        return None  # near-identical
    return next((name for name, differs in _GUARDS if differs(one, other)), None)


@lru_cache(maxsize=16_384)
def read(text: str) -> Read:
    """Return a question as the guards read it."""
    plain = unicodedata.normalize("NFKC", text).replace("\u2019", "'")
    plain = _NEGATED.sub(" not", plain.replace("can't", "can not").replace("won't", "will not"))
    found = _TOKEN.findall(_without_courtesies(_CONTRACTED.sub("", plain)))
    low = [_folded(one) for one in found]
    names = [
        after
        for at, (before, after) in enumerate(zip(found, low, strict=True))
        if (at and before[0].isupper() and after not in words.PERSONS) or before[1:] != before[1:].lower()
    ]
    normal = normal_form(text)
    return Read(
        normal,
        _wording(normal),
        tuple(one for one in low if one[0].isalnum()),
        tuple(_stem(one) for one in low if one[0].isalnum() and one not in words.GLUE),
        tuple(one for one in low if any(map(str.isdigit, one))),
        tuple(names),
        tuple(one for one in low if not one[0].isalnum()),
        tuple(_QUOTED.findall(plain)),
    )


def _wording(normal: str) -> tuple[str, ...]:
    """Return the words and marks of a normal form, in which "how can I" and "how do you" are one."""
    return tuple(_MARK.findall(_HOW.sub("how to ", normal).casefold()))


def _without_courtesies(text: str) -> str:
    for courtesy in words.COURTESIES:
        if (at := text.lower().find(courtesy)) >= 0 and not text[at + len(courtesy) :][:1].isalnum():
            text = text[:at] + text[at + len(courtesy) :]
    return text.strip(" ,.!?;:")


def _folded(token: str) -> str:
    low = token.casefold()
    if low[0].isdigit():
        return re.sub(r"(?<=\d),(?=\d{3}\b)", "", low)
    return words.NUMBER_WORDS.get(low, low)


def _stem(token: str) -> str:
    if any(map(str.isdigit, token)) or token in words.COUNTING:
        return token
    found = _cut(token)
    return _SYNONYMS.get(found, found)


def _cut(token: str) -> str:
    for ending in _ENDINGS:
        if token.endswith(ending) and len(token) - len(ending) >= 3:
            token = token[: -len(ending)]
            break
    return token[:-1] if len(token) > 3 and token[-1] == token[-2] else token


_SYNONYMS: Final = {_cut(word): _cut(first) for word, first in words.SYNONYMS.items()}
_OPPOSITES: Final = frozenset(frozenset(map(_stem, pair)) for pair in words.OPPOSITES)


def _slightly(one: Read, other: Read) -> bool:
    """Refuse wordings that differ slightly: what may be left out of those, the normal form leaves out."""
    return _differ_slightly(one.wording, other.wording)


def _numbers(one: Read, other: Read) -> bool:
    return one.numbers != other.numbers


def _symbols(one: Read, other: Read) -> bool:
    return one.symbols != other.symbols or one.quoted != other.quoted


def _names(one: Read, other: Read) -> bool:
    here, there = set(one.tokens), set(other.tokens)
    if not (there.issuperset(one.names) and here.issuperset(other.names)):
        return True
    named = {*one.names, *other.names}
    return _order(one.tokens, named) != _order(other.tokens, named)


def _negation(one: Read, other: Read) -> bool:
    return _count(one, words.NEGATIONS) != _count(other, words.NEGATIONS)


def _opposites(one: Read, other: Read) -> bool:
    here, there = set(map(_stem, one.tokens)), set(map(_stem, other.tokens))
    return any(frozenset((mine, yours)) in _OPPOSITES for mine in here - there for yours in there - here)


def _interrogatives(one: Read, other: Read) -> bool:
    return _kinds(one, words.INTERROGATIVES) != _kinds(other, words.INTERROGATIVES) or any(
        (_pair_in(one, "how", word)) != _pair_in(other, "how", word)
        for word in ("many", "much", "long", "often", "far", "old")
    )


def _persons(one: Read, other: Read) -> bool:
    here, there = _sequence(one, words.PERSONS), _sequence(other, words.PERSONS)
    return bool(here) and bool(there) and here != there


def _tense(one: Read, other: Read) -> bool:
    return any(bool(_count(one, kind)) != bool(_count(other, kind)) for kind in (words.PAST, words.FUTURE))


def _counting(one: Read, other: Read) -> bool:
    return not ({*one.tokens} ^ {*other.tokens}).isdisjoint(words.COUNTING - words.LOOSE)


def _roles(one: Read, other: Read) -> bool:
    """Refuse if a relation has other words after it than there, although those words are there too."""
    here, there = _related(one), _related(other)
    return any(
        mine != there[relation] and (mine in other.content or there[relation] in one.content)
        for relation, mine in here.items()
        if relation in there
    )


def _another_word(one: Read, other: Read) -> bool:
    """Refuse if both are nearly the same words: then those that differ are what is asked for."""
    if one.content == other.content:
        return False
    here, there = Counter(one.content), Counter(other.content)
    # Not here - there: the same words in another order, or the other one asks for more.
    return not here - there or not there - here or _differ_slightly(one.content, other.content)


def _differ_slightly(one: Sequence[str], other: Sequence[str]) -> bool:
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    shared = sum(block.size for block in matcher.get_matching_blocks())
    return shared >= _MOSTLY_SHARED * max(len(one) - shared, len(other) - shared)


def _order(tokens: Sequence[str], of: set[str]) -> list[str]:
    return [one for one in tokens if one in of]


def _count(one: Read, of: frozenset[str]) -> int:
    return sum(token in of for token in one.tokens)


def _kinds(one: Read, of: dict[str, str]) -> set[str]:
    return {of[token] for token in one.tokens if token in of}


def _pair_in(one: Read, first: str, second: str) -> bool:
    return any(pair == (first, second) for pair in zip(one.tokens, one.tokens[1:], strict=False))


def _sequence(one: Read, of: dict[str, str]) -> list[str]:
    return list(dict.fromkeys(of[token] for token in one.tokens if token in of))


def _related(one: Read) -> dict[str, str]:
    """Each relation, and the next word of content after it."""
    after: dict[str, str] = {}
    for at, token in enumerate(one.tokens):
        if token in words.RELATIONS:
            following = next((next_ for next_ in one.tokens[at + 1 :] if next_ not in words.GLUE), None)
            if following is not None:
                after[token] = _stem(following)
    return after


_GUARDS: Final[tuple[tuple[str, Callable[[Read, Read], bool]], ...]] = (
    ("numbers", _numbers),
    ("symbols", _symbols),
    ("names", _names),
    ("negation", _negation),
    ("opposites", _opposites),
    ("question", _interrogatives),
    ("persons", _persons),
    ("tense", _tense),
    ("counting words", _counting),
    ("roles", _roles),
    ("another word", _another_word),
    ("wording", _slightly),
)
