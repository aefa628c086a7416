"""The configuration file: TOML that names the channels.

Secrets are read from the environment, and never shown: neither they nor a URL stand in an error, in a log or
in a `repr`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from ninelives.config_files import FieldReader, read_toml
from ninelives.core.durations import duration_ms
from ninelives.ops.notify.kinds import GROUPS, SEVERITIES, NoticeSeverity

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_LEAST_REMINDER_MS = 1_000
_SLACK = "hooks.slack.com"
_BUILT_IN = {"http": "webhook", "https": "webhook", "smtp": "smtp", "smtps": "smtp"}
TYPES = ("webhook", "slack", "smtp", "apprise")


class ChannelSecret:
    """A text that is not shown by accident."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return "Secret(***)"


class ChannelSettings(Struct, frozen=True, kw_only=True):
    """Where notices go, and which of them.

    `agents` and `labels` narrow it to events of such runs. `then` are channels that get an item which is
    still open after `remind_ms`. Without `arguments`, a notice has no values of a call.
    """

    name: str
    type: str
    url: ChannelSecret
    secret: ChannelSecret | None
    kinds: frozenset[str]
    agents: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    min_severity: NoticeSeverity = NoticeSeverity.INFO
    remind_ms: int = 0
    then: tuple[str, ...] = ()
    timeout_seconds: float = 10.0
    arguments: bool = True


class Settings(Struct, frozen=True, kw_only=True):
    """The whole file."""

    channels: tuple[ChannelSettings, ...]
    dashboard_url: str = ""
    poll_seconds: float = 5.0
    outage_after_ms: int = 600_000


_TOP = {"channel": list, "dashboard_url": str, "poll": str, "outage_after": str}
_FIELDS: dict[str, Any] = {
    "name": str,
    "type": str,
    "url": str,
    "url_env": str,
    "secret_env": str,
    "sign": bool,
    "kinds": list,
    "agents": list,
    "labels": dict,
    "min_severity": str,
    "remind": str,
    "then": list,
    "timeout": str,
    "arguments": bool,
}
_REMEDY = "See docs/notifications.md"


def read_settings(path: Path, environment: Mapping[str, str]) -> Settings:
    """Read and check a configuration file. Raises UsageError."""
    _, found = read_toml(path, _REMEDY)
    return _SettingsReader(str(path), environment).settings(found)


def key_of_secret(secret: str) -> bytes | None:
    """Return the key of a secret: base64 after `whsec_`, as Standard Webhooks have it, else UTF-8.

    None if it is not base64.
    """
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        # Strictly: what decoding passes over would be missing from the key, and no receiver would accept it.
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        return None


class _SettingsReader(FieldReader):
    def __init__(self, file: str, environment: Mapping[str, str]) -> None:
        super().__init__(file, _REMEDY)
        self._environment = environment

    def settings(self, found: dict[str, Any]) -> Settings:
        self.fields(found, _TOP)
        tables = found.get("channel", [])
        if not tables:
            raise self.wrong("channel", "there is no channel", "Add a table [[channel]]")
        channels: list[ChannelSettings] = []
        for number, table in enumerate(tables):
            path = f"channel[{number}]"
            if not isinstance(table, dict):
                raise self.wrong(path, "it is not a table", "Write [[channel]]")
            channel = self._channel(table, path)
            if channel.name in {one.name for one in channels}:
                raise self.wrong(f"{path}.name", f"{channel.name!r} is used twice", "Choose another name")
            channels.append(channel)
        self._check_ladder(channels)
        dashboard = found.get("dashboard_url", "")
        if dashboard and urlsplit(dashboard).scheme not in ("http", "https"):
            raise self.wrong("dashboard_url", "it is not an address", "Begin it with http:// or https://")
        return Settings(
            channels=tuple(channels),
            dashboard_url=dashboard.rstrip("/"),
            poll_seconds=max(100, self._age_ms(found.get("poll", "5s"), "poll")) / 1000,
            outage_after_ms=self._age_ms(found.get("outage_after", "10m"), "outage_after"),
        )

    def _channel(self, table: dict[str, Any], path: str) -> ChannelSettings:
        self.fields(table, _FIELDS, path)
        name = table.get("name", "")
        if not _NAME.fullmatch(name):
            raise self.wrong(f"{path}.name", f"{name!a} is not a name", "Use a-z, 0-9, - and _; at most 40")
        url = self._url(table, path)
        type_ = self._type(table, url, path)
        secret = self._secret(table, type_, path)
        return ChannelSettings(
            name=name,
            type=type_,
            url=ChannelSecret(url),
            secret=secret,
            kinds=self._kinds(table, path),
            agents=self._texts(table, "agents", path),
            labels=self._labels(table, path),
            min_severity=self._severity(table, path),
            remind_ms=self._reminder_ms(table, path),
            then=self._texts(table, "then", path),
            timeout_seconds=self._timeout(table, path),
            arguments=table.get("arguments", True),
        )

    def _url(self, table: dict[str, Any], path: str) -> str:
        if ("url" in table) == ("url_env" in table):
            raise self.wrong(
                f"{path}.url", "give either url or url_env", "url_env names a variable that holds the URL"
            )
        if "url_env" in table:
            return self._variable(table["url_env"], f"{path}.url_env")
        return str(table["url"])

    def _type(self, table: dict[str, Any], url: str, path: str) -> str:
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            parts, host = urlsplit(""), None
        if not parts.scheme or not host:
            raise self.wrong(f"{path}.url", "it is not a URL", "Write it as https://host/path") from None
        known = _BUILT_IN.get(parts.scheme, "apprise")
        given = table.get("type") or ("slack" if known == "webhook" and host == _SLACK else known)
        fits = given in TYPES and (given in (known, "apprise") or (given, known) == ("slack", "webhook"))
        if not fits:
            raise self.wrong(
                f"{path}.type",
                f"{given!a} does not fit the URL's scheme {parts.scheme!a}",
                f"Use {', '.join(TYPES)}, or leave it out",
            )
        return str(given)

    def _secret(self, table: dict[str, Any], type_: str, path: str) -> ChannelSecret | None:
        if "secret_env" in table:
            secret = self._variable(table["secret_env"], f"{path}.secret_env")
            if not key_of_secret(secret):
                raise self.wrong(
                    f"{path}.secret_env",
                    "after whsec_ the secret is no base64, or it is empty",
                    "Copy the whole secret from the receiver, or use one that does not begin with whsec_",
                )
            return ChannelSecret(secret)
        if type_ == "webhook" and table.get("sign", True):
            raise self.wrong(
                f"{path}.secret_env",
                "a webhook is signed, and this one has no secret",
                "Name the variable that holds it, or write sign = false",
            )
        return None

    def _variable(self, name: str, path: str) -> str:
        value = self._environment.get(name, "")
        if not value:
            raise self.wrong(path, f"the environment has no {name!a}", "Set it, and start again")
        return value

    def _kinds(self, table: dict[str, Any], path: str) -> frozenset[str]:
        if "kinds" not in table:
            return frozenset(SEVERITIES)
        found: set[str] = set()
        for number, kind in enumerate(table["kinds"]):
            if not isinstance(kind, str):
                raise self.wrong(f"{path}.kinds[{number}]", "it is not a text", "Write it in quotes")
            if kind in GROUPS:
                found |= GROUPS[kind]
            elif kind in SEVERITIES:
                found.add(kind)
            else:
                known = ", ".join((*SEVERITIES, *GROUPS))
                raise self.wrong(f"{path}.kinds[{number}]", f"there is no kind {kind!a}", f"Use {known}")
        return frozenset(found)

    def _texts(self, table: dict[str, Any], field: str, path: str) -> tuple[str, ...]:
        for number, text in enumerate(table.get(field, [])):
            if not isinstance(text, str):
                raise self.wrong(f"{path}.{field}[{number}]", "it is not a text", "Write it in quotes")
        return tuple(table.get(field, []))

    def _labels(self, table: dict[str, Any], path: str) -> dict[str, str]:
        labels = table.get("labels", {})
        for name, value in labels.items():
            if not isinstance(value, str):
                raise self.wrong(f"{path}.labels.{name}", "it is not a text", "Write it in quotes")
        return dict(labels)

    def _severity(self, table: dict[str, Any], path: str) -> NoticeSeverity:
        text = table.get("min_severity", "info")
        if text.upper() not in NoticeSeverity.__members__:
            raise self.wrong(
                f"{path}.min_severity", f"there is no severity {text!a}", "Use info, warning or critical"
            )
        return NoticeSeverity[text.upper()]

    def _reminder_ms(self, table: dict[str, Any], path: str) -> int:
        if "remind" not in table:
            if table.get("then"):
                raise self.wrong(f"{path}.then", "it needs remind", 'Write after how long: remind = "1h"')
            return 0
        found = self._age_ms(table["remind"], f"{path}.remind")
        if found < _LEAST_REMINDER_MS:
            raise self.wrong(f"{path}.remind", "it is too short", "Write at least 1s")
        return found

    def _timeout(self, table: dict[str, Any], path: str) -> float:
        found = self._age_ms(table.get("timeout", "10s"), f"{path}.timeout") / 1000
        if not 1 <= found <= 300:
            raise self.wrong(f"{path}.timeout", f"{found:g} s", "Write between 1s and 5m")
        return found

    def _age_ms(self, text: str, path: str) -> int:
        found = duration_ms(text)
        if found is None:
            raise self.wrong(path, f"{text!a} is not a time", "Write it as 90s, 15m, 12h or 30d")
        return found

    def _check_ladder(self, channels: list[ChannelSettings]) -> None:
        names = {one.name for one in channels}
        for number, channel in enumerate(channels):
            for at, name in enumerate(channel.then):
                if name not in names or name == channel.name:
                    raise self.wrong(
                        f"channel[{number}].then[{at}]",
                        f"there is no other channel {name!a}",
                        f"Use one of {', '.join(sorted(names - {channel.name}))}" if len(names) > 1 else "",
                    )
