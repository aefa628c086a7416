"""Webhooks and Slack's incoming webhooks, by HTTP.

A webhook is signed as Standard Webhooks say: `webhook-id`, `webhook-timestamp`, `webhook-signature`. A
receiver answers 2xx when it has kept the notice. Redirects are not followed. An attempt takes no longer than
the time limit, however slowly a receiver answers. What is reported of a failure never has the URL in it.
"""

from __future__ import annotations

import base64
import hmac
import http.client
import json
import socket
import time
from email.utils import parsedate_to_datetime
from urllib.parse import unquote, urlsplit

from ninelives import __version__
from ninelives.ops.notify.channels.attempt import SENT, AttemptOutcome, Send, cut_off, network_fault
from ninelives.ops.notify.config import ChannelSettings, key_of_secret
from ninelives.ops.notify.notice import Notice, as_json, as_text

_ANSWER_BYTES = 4096
_LONGEST_PAUSE_SECONDS = 86_400.0
_BUSY = frozenset({408, 425, 429})
_SLACK_CHARACTERS = 3_500


def webhook(channel: ChannelSettings) -> Send:
    """Return what posts a notice to a webhook."""
    return lambda notice: _post(channel, as_json(notice), notice.id)


def slack(channel: ChannelSettings) -> Send:
    """Return what posts a notice to Slack."""
    return lambda notice: _post(channel, _slack(notice), "")


def signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """Return the header `webhook-signature`: HMAC-SHA256 over id, time and body.

    A secret that begins with `whsec_` is base64, as Standard Webhooks have it; else its UTF-8 is the key.
    """
    key = key_of_secret(secret) or b""
    signed = hmac.digest(key, f"{id}.{timestamp}.".encode() + body, "sha256")
    return f"v1,{base64.b64encode(signed).decode()}"


def _slack(notice: Notice) -> bytes:
    text = as_text(notice, _SLACK_CHARACTERS)
    # Slack's own marks begin with <: a mention of everyone, a link with another text.
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return json.dumps({"text": escaped, "mrkdwn": False}).encode()


def _post(channel: ChannelSettings, body: bytes, id: str) -> AttemptOutcome:
    parts = urlsplit(channel.url.text)
    headers = {"content-type": "application/json", "user-agent": f"ninelives/{__version__}"}
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    if id:
        now = int(time.time())
        headers |= {"webhook-id": id, "webhook-timestamp": str(now)}
        if channel.secret is not None:
            headers["webhook-signature"] = signature(channel.secret.text, id, now, body)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=channel.timeout_seconds
        )
    else:
        connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port, timeout=channel.timeout_seconds
        )
    # The connection forgets its socket when the answer says that it is the last one.
    kept: list[socket.socket] = []
    try:
        with cut_off(channel.timeout_seconds, lambda: kept[0] if kept else connection.sock):
            connection.connect()
            kept.append(connection.sock)
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read(_ANSWER_BYTES)
            return _judged(answer.status, answer.getheader("retry-after"))
    except (OSError, http.client.HTTPException, ValueError) as error:
        return AttemptOutcome(error=network_fault(error), is_wide=True)
    finally:
        connection.close()


def _judged(status: int, retry_after: str | None) -> AttemptOutcome:
    if 200 <= status < 300:
        return SENT
    return AttemptOutcome(
        error=f"the receiver answered {status}",
        pause_seconds=pause_in(retry_after),
        is_wide=status >= 500 or status in _BUSY,
    )


def pause_in(retry_after: str | None) -> float:
    """Return the seconds that a `Retry-After` asks for; 0 when it asks for nothing that can be read."""
    if not retry_after:
        return 0.0
    try:
        if retry_after.strip().isdigit():
            seconds = float(retry_after)
        else:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(0.0, seconds), _LONGEST_PAUSE_SECONDS)
