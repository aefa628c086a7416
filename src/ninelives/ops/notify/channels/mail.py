"""Notices by mail: `smtp://USER@HOST:587/?from=A&to=B&to=C`, or `smtps://` for TLS from the first byte.

`smtp://` goes on only with STARTTLS, unless the URL says `tls=no`. The password is the channel's secret. The
`Message-ID` is made of the notice's id, so that a mail that is sent again can be known by it.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ninelives.core.errors import UsageError
from ninelives.ops.notify.channels.attempt import SENT, AttemptOutcome, Send, cut_off, network_fault
from ninelives.ops.notify.config import ChannelSettings
from ninelives.ops.notify.notice import Notice, as_text

_CHARACTERS = 20_000
_FIELDS = {"from", "to", "tls"}


def mailer(channel: ChannelSettings) -> Send:
    """Return what mails a notice. Raises UsageError when the URL lacks the addresses from and to."""
    given = parse_qs(urlsplit(channel.url.text).query)
    addresses = [*given.get("from", []), *given.get("to", [])]
    is_complete = len(given.get("from", [])) == 1 and given.get("to") and set(given) <= _FIELDS
    plain = all("@" in one and one.isprintable() and not set(one) & set(" ,;<>") for one in addresses)
    if not is_complete or not plain or given.get("tls", ["yes"]) not in (["yes"], ["no"]):
        raise UsageError(
            f"channel {channel.name!r}: the URL lacks the addresses from and to",
            remedy="Write smtp://USER@HOST:587/?from=agents@example.com&to=ada@example.com",
        )
    return lambda notice: _mail(channel, notice, given)


def _mail(channel: ChannelSettings, notice: Notice, given: dict[str, list[str]]) -> AttemptOutcome:
    message = EmailMessage()
    message["Subject"] = notice.title
    message["From"], message["To"] = given["from"][0], ", ".join(given["to"])
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{notice.id}@ninelives.invalid>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(as_text(notice, _CHARACTERS))
    limit = channel.timeout_seconds
    try:
        held: list[smtplib.SMTP] = []
        # From before the greeting on: the server may be slow with that, too.
        with cut_off(limit, lambda: held[0].sock if held else None), _connect(channel, held) as server:
            return _hand_over(channel, server, message, tls=given.get("tls") != ["no"])
    except smtplib.SMTPResponseException as error:
        return AttemptOutcome(error=f"the mail server answered {error.smtp_code}", is_wide=True)
    except smtplib.SMTPRecipientsRefused as error:
        codes = sorted({code for code, _ in error.recipients.values()})
        return AttemptOutcome(error=f"the mail server refused the recipients: {codes}")
    except (OSError, smtplib.SMTPException) as error:
        return AttemptOutcome(error=network_fault(error), is_wide=True)


def _hand_over(
    channel: ChannelSettings, server: smtplib.SMTP, message: EmailMessage, *, tls: bool
) -> AttemptOutcome:
    parts = urlsplit(channel.url.text)
    if parts.scheme == "smtp" and tls:
        server.starttls(context=ssl.create_default_context())
    if parts.username and channel.secret is not None:
        server.login(unquote(parts.username), channel.secret.text)
    refused = server.send_message(message)
    if refused:
        codes = sorted({code for code, _ in refused.values()})
        return AttemptOutcome(error=f"the mail server refused some recipients: {codes}")
    return SENT


class _PlainServer(smtplib.SMTP):
    def __init__(self, held: list[smtplib.SMTP], *args: Any, **kwargs: Any) -> None:
        held.append(self)
        super().__init__(*args, **kwargs)


class _TlsServer(smtplib.SMTP_SSL):
    def __init__(self, held: list[smtplib.SMTP], *args: Any, **kwargs: Any) -> None:
        held.append(self)
        super().__init__(*args, **kwargs)


def _connect(channel: ChannelSettings, held: list[smtplib.SMTP]) -> smtplib.SMTP:
    parts, limit = urlsplit(channel.url.text), channel.timeout_seconds
    host, port, name = parts.hostname or "", parts.port or 0, socket.gethostname()
    if parts.scheme == "smtps":
        return _TlsServer(held, host, port, name, timeout=limit, context=ssl.create_default_context())
    return _PlainServer(held, host, port, name, timeout=limit)
