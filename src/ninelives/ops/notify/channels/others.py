"""Every other service, by the package apprise (`ninelives[notify]`): its URL is the channel's.

Each attempt is a process of its own, so that it ends in time whatever a service does (`apprise_process`).
Redirects are not followed, if apprise can be asked for that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

import msgspec

from ninelives.core.errors import UsageError
from ninelives.ops.notify.channels.apprise_process import REFUSED, TAKEN, AppriseCall, service_for
from ninelives.ops.notify.channels.attempt import SENT, AttemptOutcome, Send
from ninelives.ops.notify.config import ChannelSettings
from ninelives.ops.notify.kinds import NoticeSeverity
from ninelives.ops.notify.notice import Notice, as_text

_CHARACTERS = 3_500
_TYPES = {NoticeSeverity.INFO: "INFO", NoticeSeverity.WARNING: "WARNING", NoticeSeverity.CRITICAL: "FAILURE"}
_START_SECONDS = 3.0
"""How much longer than an attempt its process may take to start: both fit into the claim (`claim_ms`)."""


def by_apprise(channel: ChannelSettings) -> Send:
    """Return what sends a notice by apprise. Raises UsageError when it is missing, or refuses the URL."""
    try:
        service = service_for(channel.url.text)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"channel {channel.name!r} needs the package apprise", remedy="pip install 'ninelives[notify]'"
        ) from error
    if service is None:
        raise UsageError(
            f"channel {channel.name!r}: apprise does not accept the URL",
            remedy="Try it with apprise's own command; write it as its documentation says",
        )
    return lambda notice: _attempt(channel, notice)


def _attempt(channel: ChannelSettings, notice: Notice) -> AttemptOutcome:
    call = AppriseCall(
        url=channel.url.text,
        title=notice.title,
        body=f"{as_text(notice, _CHARACTERS)}\nnotice {notice.id}",
        type=_TYPES[notice.severity],
        seconds=channel.timeout_seconds,
        start_seconds=channel.timeout_seconds + _START_SECONDS,
    )
    code = _exit_code(msgspec.json.encode(call), call.seconds + call.start_seconds)
    if code == TAKEN:
        return SENT
    if code == REFUSED:
        return AttemptOutcome(error="the service did not take it", is_wide=True)
    if code in (None, -signal.SIGALRM):
        return AttemptOutcome(error="no answer in time", is_wide=True)
    return AttemptOutcome(error=f"the process of the attempt ended with {code}", is_wide=True)


def _exit_code(call: bytes, seconds: float) -> int | None:
    """Carry out a call in a process; None: it was killed, since it did not end in time."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ninelives.ops.notify.channels.apprise_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # what a service raises may have the URL in it
        start_new_session=True,  # Ctrl-C must not cut off what may have been sent
    )
    try:
        # Not in the command line, which every user of the machine may read.
        with suppress(BrokenPipeError):
            process.communicate(call, seconds)
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
