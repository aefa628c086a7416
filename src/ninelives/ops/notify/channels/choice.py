"""Which module delivers the notices of a channel."""

from __future__ import annotations

from ninelives.core.errors import UsageError
from ninelives.ops.notify.channels import webhooks
from ninelives.ops.notify.channels.attempt import Send
from ninelives.ops.notify.config import ChannelSettings


def sender_for(channel: ChannelSettings) -> Send:
    """Return what delivers a notice to a channel. Raises UsageError when a package is missing."""
    if channel.type == "webhook":
        return webhooks.webhook(channel)
    if channel.type == "slack":
        return webhooks.slack(channel)
    if channel.type == "smtp":
        from ninelives.ops.notify.channels.mail import mailer

        return mailer(channel)
    if channel.type == "apprise":
        from ninelives.ops.notify.channels.others import by_apprise

        return by_apprise(channel)
    raise UsageError(f"channel {channel.name!r} has no type {channel.type!r}")
