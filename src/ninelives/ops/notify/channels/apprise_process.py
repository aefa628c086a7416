"""The process that makes one attempt by apprise: `python -m` of this module, with an `AppriseCall` on stdin.

Apprise has no time limit for a whole attempt, and its plugins are many. So each attempt is a process, which a
timer of its own ends; that works even if the notifier dies meanwhile. It answers by its exit code.

If we die here: the claim of the notice lapses, and it is sent again.
"""

from __future__ import annotations

import logging
import signal
import sys
from typing import Any

import msgspec
from msgspec import Struct

TAKEN, REFUSED = 0, 3


class AppriseCall(Struct, frozen=True, kw_only=True):
    """What to send, and within which time."""

    url: str
    title: str
    body: str
    type: str
    seconds: float
    start_seconds: float


def service_for(url: str) -> Any:
    """Return apprise's object for a URL, None if it does not accept it. Raises ModuleNotFoundError."""
    import apprise

    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # its lines may have the URL in them
    asset = apprise.AppriseAsset()
    # A receiver could send arguments of calls on to any address. Versions without the switch follow.
    if hasattr(asset, "http_redirects"):
        asset.http_redirects = False
    service = apprise.Apprise(asset=asset)
    return service if service.add(url) else None


def main() -> int:
    """Make the attempt; return the exit code."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    call = msgspec.json.decode(sys.stdin.buffer.read(), type=AppriseCall)
    signal.setitimer(signal.ITIMER_REAL, call.start_seconds)
    service = service_for(call.url)
    if service is None:
        return REFUSED
    import apprise

    signal.setitimer(signal.ITIMER_REAL, call.seconds)  # importing has taken its time, too
    is_taken = service.notify(
        title=call.title,
        body=call.body,
        notify_type=getattr(apprise.NotifyType, call.type),
        body_format=apprise.NotifyFormat.TEXT,
    )
    return TAKEN if is_taken else REFUSED


if __name__ == "__main__":
    sys.exit(main())
