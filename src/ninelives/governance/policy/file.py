"""A policy file as it is written: TOML, read strictly. A key that is not known is an error, never ignored.

What the actions and conditions in it mean is checked in `rules`; the tables of budgets, trips and others are
checked by their owners (`tables`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from ninelives.config_files import parse_toml
from ninelives.core.durations import duration_ms
from ninelives.core.errors import UsageError
from ninelives.governance.policy.language.errors import did_you_mean
from ninelives.governance.policy.language.names import KINDS

MOST_BYTES, MOST_RULES = 256 * 1024, 1_000
TEXT: Final = "the policy"
"""The source of a policy that is in no file."""
DEFAULTS, ON_ERROR = ("allow", "deny"), ("escalate", "deny")
_POLICY_KEYS: Final = ("name", "default", "on_error", "timezone", "elsewhere")
_RULE_KEYS: Final = ("id", "actions", "kinds", "when", "do", "why")
_MORE_KEYS: Final = {"allow": (), "deny": (), "ask": ("to", "approvals", "timeout"), "rewrite": ("args",)}
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}", re.ASCII | re.IGNORECASE)


class RuleSpec(Struct, frozen=True, kw_only=True):
    """A rule as it is written; `line` and `when_line` are where."""

    id: str
    actions: tuple[str, ...]
    kinds: tuple[str, ...]
    do: str
    when: str | None = None
    to: str = ""
    why: str = ""
    approvals: int = 1
    timeout: float | None = None
    args: dict[str, Any] = {}
    line: int = 0
    when_line: int = 0


class PolicySpec(Struct, frozen=True, kw_only=True):
    """A policy file as it is written. `elsewhere` are actions that only other processes declare."""

    source: str
    text: str
    name: str
    default: str
    on_error: str
    timezone: str
    elsewhere: tuple[str, ...]
    rules: tuple[RuleSpec, ...]
    tests: tuple[dict[str, Any], ...]
    is_file: bool
    tables: Mapping[str, Any]
    lines: Lines

    @property
    def digest(self) -> str:
        """The digest of the text, which records carry."""
        return digest_of(self.text)

    @property
    def directory(self) -> Path:
        """The directory that paths in the file start from."""
        return Path(self.source).parent if self.is_file else Path()

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of `now`."""
        return ZoneInfo(self.timezone)


def digest_of(text: str) -> str:
    """Return the digest that names a policy's text."""
    return blake2b(text.encode(), digest_size=16).hexdigest()


def read_text(given: str | Path) -> tuple[str, str]:
    """Return a policy's text, and what to call it in messages; a text has a line break or a `[` in it.

    Raises UsageError when the file cannot be read, is too large, or is no UTF-8.
    """
    if isinstance(given, str) and ("\n" in given or "[" in given):
        return _sized(given, TEXT), TEXT
    path = Path(given)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        remedy = "Name a policy file (TOML) that this process can read"
        raise UsageError(f"the policy {path} cannot be read: {error.strerror}", remedy=remedy) from None
    try:
        return _sized(data.decode("utf-8"), str(path)), str(path)
    except UnicodeDecodeError:
        raise UsageError(f"the policy {path} is not UTF-8", remedy="Save it as UTF-8") from None


def _sized(text: str, source: str) -> str:
    if len(text.encode(errors="replace")) > MOST_BYTES:
        what = f"{source} is larger than {MOST_BYTES // 1024} KiB"
        raise UsageError(what, remedy="Split it: several policies may be given, and the strictest wins")
    return text


class Lines:
    """Where things stand in the text: tomllib does not say. Used for messages only."""

    def __init__(self, source: str, text: str) -> None:
        self.source, self._lines = source, text.splitlines()

    def of_table(self, name: str, number: int = 0) -> int:
        """Return the line of a table's n-th header; 0 if it is written in another way."""
        header = re.compile(rf"\s*\[\[?\s*[\"']?{re.escape(name)}[\"']?\s*\]\]?")
        found = [at for at, text in enumerate(self._lines, 1) if header.match(text)]
        return found[number] if number < len(found) else 0

    def of_key(self, key: str, after: int) -> int:
        """Return the line of a key in the table whose header stands at a line; else that line."""
        for at, text in enumerate(self._lines[after:], after + 1):
            if re.match(r"\s*\[\[?[^\[\],=]+\]\]?\s*(#.*)?$", text):
                break
            if after and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", text):
                return at
        return after

    def error(self, line: int, what: str, remedy: str) -> UsageError:
        """Return the error for a fault at a line."""
        where = f"{self.source}:{line}" if line else self.source
        return UsageError(f"{where}: {what}", remedy=remedy)


def parse_policy(text: str, source: str = TEXT) -> PolicySpec:
    """Read a policy's text. Raises UsageError for all that is not exactly as it must be."""
    lines = Lines(source, text)
    held = parse_toml(text, source, "Fix the line it names")
    head = held.pop("policy", None)
    if not isinstance(head, dict):
        remedy = 'Begin with: [policy], name = "...", default = "deny"'
        raise lines.error(1, "it has no table [policy]", remedy)
    at = lines.of_table("policy")
    _refuse_unknown(lines, at, "[policy]", head, _POLICY_KEYS)
    rules = _tables(lines, "rule", held.pop("rule", []))
    if len(rules) > MOST_RULES:
        raise lines.error(at, f"it has {len(rules)} rules, over the limit of {MOST_RULES}", "Join some")
    read = tuple(
        _rule(lines, one, lines.of_table("rule", number), number) for number, one in enumerate(rules)
    )
    seen: dict[str, int] = {}
    for one in read:
        if seen.setdefault(one.id, one.line) != one.line or [rule.id for rule in read].count(one.id) > 1:
            raise lines.error(one.line, f"two rules are {one.id!r}", "Give each rule an id of its own")
    return PolicySpec(
        source=source,
        text=text,
        name=_name(lines, at, head),
        default=_choice(lines, at, "[policy]", head, "default", DEFAULTS),
        on_error=_choice(lines, at, "[policy]", {"on_error": "escalate", **head}, "on_error", ON_ERROR),
        timezone=_timezone(lines, at, head.get("timezone", "UTC")),
        elsewhere=_texts(lines, at, "[policy]", head, "elsewhere"),
        rules=read,
        tests=tuple(_tables(lines, "test", held.pop("test", []))),
        is_file=source != TEXT,
        tables=held,
        lines=lines,
    )


def _tables(lines: Lines, name: str, found: Any) -> list[dict[str, Any]]:
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise lines.error(lines.of_table(name), f"{name!r} is no list of tables", f"Write [[{name}]]")
    return found


def _refuse_unknown(
    lines: Lines, at: int, what: str, table: Mapping[str, Any], known: tuple[str, ...], more: str = ""
) -> None:
    for key in table:
        if key not in known:
            line = lines.of_key(key, at)
            raise lines.error(
                line, f"{what}: unknown key {key!r}{more}", did_you_mean(key, known, "Keys are")
            )


def _rule(lines: Lines, table: dict[str, Any], at: int, number: int) -> RuleSpec:
    named = table.get("id")
    what = f"rule {named!r}" if isinstance(named, str) else f"rule {number + 1}"
    if not isinstance(named, str) or not _NAME.fullmatch(named):
        remedy = 'Write id = "...": letters, digits, dots, dashes'
        raise lines.error(at, f"{what} has no usable id", remedy)
    do = _choice(lines, at, what, table, "do", tuple(_MORE_KEYS))
    extra = f" beside do = {do!r}" if any(table.keys() & set(keys) for keys in _MORE_KEYS.values()) else ""
    _refuse_unknown(lines, at, what, table, (*_RULE_KEYS, *_MORE_KEYS[do]), extra)
    kinds = _texts(lines, at, what, table, "kinds")
    if "kinds" in table and not kinds:
        raise lines.error(lines.of_key("kinds", at), f"{what} names no kinds", "Leave out `kinds` for all")
    for kind in kinds:
        if kind not in KINDS:
            remedy = did_you_mean(kind, KINDS, "Kinds are")
            raise lines.error(lines.of_key("kinds", at), f"{what}: unknown kind {kind!r}", remedy)
    if "actions" not in table:
        remedy = 'Write actions = ["refund"], a pattern such as "mail_*", or "*" for all'
        raise lines.error(at, f"{what} names no actions", remedy)
    actions = _texts(lines, at, what, table, "actions")
    if not actions:
        raise lines.error(lines.of_key("actions", at), f"{what} names no actions", "Name some, or remove it")
    when = _text(lines, at, what, table, "when") if "when" in table else None
    args = table.get("args", {})
    if do == "rewrite" and (not isinstance(args, dict) or not args):
        raise lines.error(at, f"{what} does not say what it rewrites", "Write args = { cents = 100 }")
    return RuleSpec(
        id=named,
        actions=actions,
        kinds=kinds,
        do=do,
        when=when,
        to=_text(lines, at, what, table, "to"),
        why=_text(lines, at, what, table, "why"),
        approvals=_approvals(lines, at, what, table.get("approvals", 1)),
        timeout=_timeout(lines, at, what, table.get("timeout")),
        args=args,
        line=at,
        when_line=lines.of_key("when", at),
    )


# Values ------------------------------------------------------------------------------------------


def _choice(
    lines: Lines, at: int, what: str, table: Mapping[str, Any], key: str, known: tuple[str, ...]
) -> str:
    shown = " or ".join(f'{key} = "{one}"' for one in known)
    if key not in table:
        raise lines.error(at, f"{what}: {key!r} is missing", f"Write {shown}")
    value = table[key]
    if not isinstance(value, str) or value not in known:
        raise lines.error(lines.of_key(key, at), f"{what}: {key} = {value!r}", f"Write {shown}")
    return value


def _text(lines: Lines, at: int, what: str, table: Mapping[str, Any], key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str) or (key in table and not value.strip()) or len(value) > 10_000:
        raise lines.error(lines.of_key(key, at), f"{what}: {key} is no text", f'Write {key} = "..."')
    return value


def _texts(lines: Lines, at: int, what: str, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) and 0 < len(one) <= 200 for one in value):
        line = lines.of_key(key, at)
        raise lines.error(line, f"{what}: {key} is no list of names", f'Write {key} = ["..."]')
    return tuple(value)


def _name(lines: Lines, at: int, head: Mapping[str, Any]) -> str:
    name = head.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        remedy = 'Write name = "shop": letters, digits, dots, dashes'
        raise lines.error(lines.of_key("name", at), "[policy]: it has no usable name", remedy)
    return name


def _timezone(lines: Lines, at: int, name: Any) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        remedy = 'Write a name such as "Europe/Berlin"'
        line = lines.of_key("timezone", at)
        raise lines.error(line, f"[policy]: {name!r} is no time zone", remedy) from None
    return str(name)


def _approvals(lines: Lines, at: int, what: str, count: Any) -> int:
    if type(count) is not int or not 1 <= count <= 20:
        line = lines.of_key("approvals", at)
        raise lines.error(line, f"{what}: approvals = {count!r}", "Write a number from 1 to 20")
    return count


def _timeout(lines: Lines, at: int, what: str, given: Any) -> float | None:
    if given is None:
        return None
    found: float | None = None
    if isinstance(given, str):
        found = (duration_ms(given) or 0) / 1000
    elif type(given) in (int, float):
        found = float(given)
    if found is None or not 0 < found < 10**9:
        line = lines.of_key("timeout", at)
        raise lines.error(line, f"{what}: timeout = {given!r}", 'Write "15m", "12h" or "2d"')
    return found
