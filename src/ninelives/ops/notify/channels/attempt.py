"""One attempt to deliver a notice: what came of it, and its time limit."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct

from ninelives.ops.notify.notice import Notice
from ninelives.views.escape import shortened


class AttemptOutcome(Struct, frozen=True, kw_only=True):
    """What came of an attempt. `error` is empty when the receiver has it.

    `is_wide`: the receiver is away, or asks for quiet, so other notices would fare the same.
    """

    error: str = ""
    pause_seconds: float = 0.0
    is_wide: bool = False


SENT = AttemptOutcome()
Send = Callable[[Notice], AttemptOutcome]


def network_fault(error: BaseException) -> str:
    """Return a failure of the network as text, without addresses."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the receiver's certificate is refused: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return shortened(error.strerror, 200)
    return type(error).__name__


@contextmanager
def cut_off(seconds: float, connected: Callable[[], socket.socket | None]) -> Iterator[None]:
    """End a conversation that takes longer than this: a receiver may send a byte now and then.

    Raises TimeoutError.
    """
    is_over = threading.Event()

    def cut() -> None:
        is_over.set()
        found = connected()
        if found is not None:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if is_over.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
