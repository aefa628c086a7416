"""Record side effects inside a process: an audit hook sees files, sockets, requests and started programs.

For each effect it logs the line of the user's code and whether a step's body was running. Effects of
ninelives's own code are ignored. Python calls the hook before the operation, so a process that is killed in
between has logged an effect that never happened.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from ninelives.chaos.ledger import Ledger, What
from ninelives.chaos.protocol import has_key, step_in
from ninelives.chaos.trial.work_tree import state_of
from ninelives.engine.context import EXECUTION, FRAME, Frame
from ninelives.engine.run.current import execution_of, here

_OURS = str(Path(__file__).parents[2]) + os.sep
_CHAOS = str(Path(__file__).parents[1]) + os.sep
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REQUESTS = ("/http/client.py", "/urllib3/")
"""Libraries whose connections are recorded as HTTP requests instead."""
_LOGGERS = ("/logging/__init__.py", "/logging/handlers.py", "/loguru/")
_SAFE = ("GET ", "HEAD ", "OPTIONS ", "TRACE ")
_DEVICES = ("/dev/", "/proc/", "/sys/")


class SeenEffect(Struct, frozen=True):
    """A side effect, as the audit event describes it."""

    what: What
    kind: str
    target: str
    data: dict[str, Any] = {}


class EffectRecorder:
    """Writes the side effects of this process to the ledger."""

    def __init__(self, ledger: Ledger, tree: Path, original: Path, proxy: str = "") -> None:
        self._proxy = urlsplit(proxy).netloc
        self._ledger, self._tree, self._original = ledger, str(tree) + os.sep, str(original) + os.sep
        self._busy = threading.local()
        self._bodies: list[Frame] = []
        self._crowded: set[Frame] = set()
        self._outside: dict[Frame, set[str]] = {}
        self.is_ready = False
        """Whether the code is loaded: effects of importing modules are not the run's."""
        libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
        self._libraries = tuple(f"{path}{os.sep}" for path in libraries if path)
        self._temporary = tempfile.gettempdir() + os.sep

    def install(self) -> None:
        """Start recording. An audit hook cannot be removed."""
        sys.addaudithook(self._on_event)

    def begin(self, frame: Frame) -> None:
        """Mark a body as running: threads that it starts lose their context and are matched by this."""
        if any(other is not frame for other in self._bodies):
            self._crowded.update((frame, *self._bodies))
        self._bodies.append(frame)
        step, fingerprint = name_of(frame), frame.fingerprint
        call = {
            "asked": fingerprint.digest.hex(),
            "shown": fingerprint.preview(),
            "turn": frame.position.execution.turn,
        }
        self._ledger.write(What.TOUCH, kind="asked", step=step, location=self._waiting(frame), data=call)

    def end(self, frame: Frame) -> None:
        """Mark a body as ended, and record how it left the files outside the tree."""
        self._bodies.remove(frame)
        for path in sorted(self._outside.pop(frame, ())):
            left = {"state": state_of(path), "is_exclusive": frame not in self._crowded}
            target = self.shown(path)
            self._ledger.write(What.TOUCH, kind="left", target=target, step=name_of(frame), data=left)

    def shown(self, path: str) -> str:
        """Translate a path in our copy of the tree into the user's tree."""
        if path.startswith(self._tree):
            return self._original + path[len(self._tree) :]
        return path

    # The hook -----------------------------------------------------------------------------------

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        describe = _EVENTS.get(event)
        if describe is None or getattr(self._busy, "now", False):
            return
        if not self.is_ready and event != "open":
            return
        self._busy.now = True
        try:
            seen = describe(args)
            if seen is not None and seen.kind == "write" and self._is_log(sys._getframe(1)):  # noqa: SLF001
                self._ledger.write(What.TOUCH, kind="log", target=self.shown(seen.target))
                seen = None
            if not self.is_ready:
                return
            if seen is not None and seen.kind == "connect" and seen.target == self._proxy:
                seen = _through_proxy(args[0])
            if seen is not None and not self._is_ignored(seen):
                self._record(seen, sys._getframe(1))  # noqa: SLF001
        except Exception as error:  # noqa: BLE001 (to raise here would forbid the user's own call)
            self._ledger.write(What.TOUCH, kind="unseen", text=f"{event}: {error!r}")
        finally:
            self._busy.now = False

    def _is_ignored(self, seen: SeenEffect) -> bool:
        path = seen.target
        return seen.kind in _FILES and (path.startswith(_DEVICES) or "__pycache__" in path)

    def _is_scratch(self, seen: SeenEffect) -> bool:
        """Return whether it is a temporary file: those are logged, but are no effect by themselves."""
        path = seen.target
        if seen.kind not in _FILES or path.startswith((self._tree, self._original)):
            return False
        return path.startswith(self._temporary)

    def _is_log(self, frame: FrameType | None) -> bool:
        """Return whether a logging library opens the file: logs are for people, and no effect."""
        while frame is not None and not self.is_users(frame.f_code.co_filename):
            if any(part in frame.f_code.co_filename for part in _LOGGERS):
                return True
            frame = frame.f_back
        return False

    def _record(self, seen: SeenEffect, innermost: FrameType) -> None:
        stack = self._stack(innermost)
        if stack is None or (seen.kind == "connect" and _is_request(innermost)):
            return
        frame = FRAME.get()
        if frame is None and EXECUTION.get() is None:
            if not stack:
                return  # neither user code nor part of a run
            frame = self._body_of(seen.data.get("sent", b""))
        data = dict(seen.data) | self._beyond(seen, frame)
        if seen.kind == "proxy":
            data["is_request"] = _is_request(innermost)
        sent = data.pop("sent", None)
        if sent is not None:
            data |= {"digest": blake2b(sent, digest_size=8).hexdigest(), "keyed": _has_key(sent, frame)}
        self._ledger.write(
            What.TOUCH if self._is_scratch(seen) or (frame is None and _only_asks(seen)) else seen.what,
            kind=seen.kind,
            target=self.shown(seen.target),
            step=name_of(frame) if frame is not None else "",
            location=_location(stack, frame) or self._waiting(frame),
            is_inside=frame is not None,
            data=data | ({"stack": stack} if frame is None else {"attempt": frame.attempt}),
        )

    def _beyond(self, seen: SeenEffect, frame: Frame | None) -> dict[str, Any]:
        """Record the state of a file outside the tree before a body changes it: all runs share it."""
        if frame is None or seen.target.startswith(self._tree):
            return {}
        if seen.kind in _FILES:
            self._outside.setdefault(frame, set()).add(seen.target)
            return {"before": state_of(seen.target), "is_exclusive": frame not in self._crowded}
        return {"is_outside": True} if seen.kind == "database" else {}

    def _body_of(self, sent: bytes) -> Frame | None:
        """Return the body that started a thread without context: by the key it sends, else the first."""
        keyed = (body for body in tuple(self._bodies) if _has_key(sent, body))
        return next(keyed, self._bodies[0] if self._bodies else None)

    def _stack(self, frame: FrameType | None) -> list[str] | None:
        """Return the user's lines on the stack, innermost first; None if ninelives itself did it."""
        stack: list[str] = []
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(_OURS) and not name.startswith(_CHAOS):
                return stack or None
            if self.is_users(name):
                stack.append(self.shown(f"{name}:{frame.f_lineno}"))
            frame = frame.f_back
        return stack

    def _waiting(self, frame: Frame | None) -> str:
        """Return the line where the run's code awaits, for effects of code that runs elsewhere."""
        execution = here() if frame is None else execution_of(frame.position)
        main = execution.main if execution is not None else None
        awaited: Any = getattr(main, "code", None)
        at = ""
        while awaited is not None:
            inner = getattr(awaited, "cr_frame", None)
            if inner is not None and self.is_users(inner.f_code.co_filename):
                at = f"{inner.f_code.co_filename}:{inner.f_lineno}"
            awaited = getattr(awaited, "cr_await", None)
        return self.shown(at)

    @lru_cache(maxsize=4096)  # noqa: B019 (one recorder per process)
    def is_users(self, name: str) -> bool:
        """Return whether a file is the user's own code."""
        if name.startswith(self._tree):
            return True
        return not name.startswith(("<", _OURS, *self._libraries)) and "site-packages" not in name


def name_of(frame: Frame) -> str:
    """Return the ledger's name of the step whose body runs."""
    return step_in(frame.position.execution.run.id, frame.position.id)


def _location(stack: list[str], frame: Frame | None) -> str:
    """Return the line to report: in a body the body's own, where a key can be passed; else the innermost."""
    if not stack:
        return ""
    return stack[0] if frame is None else stack[-1]


def _is_request(frame: FrameType | None) -> bool:
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in _REQUESTS):
            return True
        frame = frame.f_back
    return False


def _only_asks(seen: SeenEffect) -> bool:
    return seen.kind == "request" and seen.target.startswith(_SAFE)


def _through_proxy(connecting: Any) -> SeenEffect:
    """Bind a socket that connects to the proxy: its port joins the proxy's log with the ledger."""
    with suppress(OSError):
        connecting.bind(("127.0.0.1", 0))
    return SeenEffect(What.TOUCH, "proxy", str(connecting.getsockname()[1]))


def _has_key(sent: bytes, frame: Frame | None) -> bool:
    return frame is not None and has_key(sent, frame.position.key())


# Audit events -------------------------------------------------------------------------------------


def _opened(args: tuple[Any, ...]) -> SeenEffect | None:
    path, mode, flags = args
    if not isinstance(path, str | bytes | os.PathLike):
        return None  # a file descriptor that is already open
    is_written = any(one in mode for one in "wax+") if mode else bool((flags or 0) & _WRITES)
    seen = _file("write")((path,)) if is_written else None
    if seen is None or not ("a" in mode if mode else (flags or 0) & os.O_APPEND):
        return seen
    return SeenEffect(seen.what, seen.kind, seen.target, {"is_appended": True})


def _file(
    kind: str, at: int = 0, dir_fd: int | None = None
) -> Callable[[tuple[Any, ...]], SeenEffect | None]:
    """Describe an operation on a path; `at` and `dir_fd` are the argument indexes of path and directory."""

    def describe(args: tuple[Any, ...]) -> SeenEffect | None:
        if not isinstance(args[at], str | bytes | os.PathLike):
            return None
        path, fd = os.fsdecode(args[at]), -1 if dir_fd is None else args[dir_fd]
        if fd >= 0:  # as in shutil.rmtree: a name relative to an open directory
            path = os.path.join(os.readlink(f"/proc/self/fd/{fd}"), path)  # noqa: PTH115, PTH118
        return SeenEffect(What.EFFECT, kind, _real(path, is_followed=kind in _FOLLOWING))

    return describe


def _real(path: str, *, is_followed: bool) -> str:
    """Resolve a path; its last part only if the operation follows links."""
    if is_followed:
        return os.path.realpath(path)
    directory, name = os.path.split(path.rstrip(os.sep) or os.sep)
    return os.path.join(os.path.realpath(directory), name)  # noqa: PTH118


def _connected(args: tuple[Any, ...]) -> SeenEffect:
    return SeenEffect(What.EFFECT, "connect", _address(args[1]))


def _address(address: Any) -> str:
    if isinstance(address, tuple) and len(address) >= 2:
        return f"{address[0]}:{address[1]}"
    return os.fsdecode(address) if isinstance(address, str | bytes) else repr(address)


def _sent(args: tuple[Any, ...]) -> SeenEffect | None:
    """Describe a request of http.client: its head comes first, its body in further calls."""
    connection, data = args
    sent = data.encode() if isinstance(data, str) else bytes(data) if _is_bytes(data) else b"?"
    line, _, _ = sent.partition(b"\r\n")
    method, _, rest = line.decode(errors="replace").partition(" ")
    path, _, version = rest.rpartition(" ")
    known = {"connection": id(connection), "sent": sent}
    if not version.startswith("HTTP/"):
        return SeenEffect(What.SENT, "request", "", known)
    if method == "CONNECT":
        return None
    if "://" not in path:
        host, port = getattr(connection, "_tunnel_host", None) or connection.host, connection.port
        scheme = "https" if connection.default_port == 443 else "http"
        path = f"{scheme}://{host}{'' if port in (80, 443, None) else f':{port}'}{path}"
    return SeenEffect(What.EFFECT, "request", f"{method} {path}", known)


def _is_bytes(data: Any) -> bool:
    return isinstance(data, bytes | bytearray | memoryview)


def _command(at: int) -> Callable[[tuple[Any, ...]], SeenEffect]:
    def describe(args: tuple[Any, ...]) -> SeenEffect:
        words = args[at]
        text = words if isinstance(words, str) else " ".join(str(word) for word in words)
        return SeenEffect(What.EFFECT, "command", text[:200])

    return describe


def _database(args: tuple[Any, ...]) -> SeenEffect | None:
    if not isinstance(args[0], str | bytes | os.PathLike) or not args[0]:
        return None
    return SeenEffect(What.TOUCH, "database", os.path.realpath(os.fsdecode(args[0])))


_FILES = frozenset({"write", "remove", "rename", "make directory", "link", "truncate"})
_FOLLOWING = frozenset({"write", "truncate"})
_EVENTS: dict[str, Callable[[tuple[Any, ...]], SeenEffect | None]] = {
    "open": _opened,
    "os.remove": _file("remove", dir_fd=1),
    "os.rmdir": _file("remove", dir_fd=1),
    "os.rename": _file("rename", 1, dir_fd=3),
    "os.mkdir": _file("make directory", dir_fd=2),
    "os.link": _file("link", 1, dir_fd=3),
    "os.symlink": _file("link", 1, dir_fd=2),
    "os.truncate": _file("truncate"),
    "socket.connect": _connected,
    "socket.sendto": _connected,
    "http.client.send": _sent,
    "subprocess.Popen": _command(1),
    "os.system": _command(0),
    "os.exec": _command(1),
    "sqlite3.connect": _database,
}
