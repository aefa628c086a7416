"""Lives of a run that asks a real HTTP server several ways; each may be killed at a moment."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, cast

import ninelives as nl
from ninelives.core.model.run import Kind
from ninelives.runtime.runtime import ProcessOptions
from tests.crash.killing import KillingStore, kill_self
from tests.crash.stores import open_brisk

nl.Runtime  # noqa: B018 (names are loaded when first used: here, not in every child)
Moment = Literal["", "first request", "both requests", "before the record", "after the record"]
PORT = 0


class ModelServer:
    """Answers the second request of a life at once, the first one never, and counts all; may kill a life."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, str, str]] = []
        """Of each request: the process that sent it, the way, and the key."""
        self.kill_at = 0
        """With which request of a life the life is killed; 0: never."""
        self._ended, self._counting = threading.Event(), threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._serve(self)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        pid = int(request.headers["pid"])
        with self._counting:
            self.requests.append((pid, request.path, request.headers["key"]))
            number = sum(one[0] == pid for one in self.requests)
        if number == self.kill_at:
            os.kill(pid, signal.SIGKILL)
            return
        if number == 1:
            self._ended.wait(60)
            return
        answer = f"answer {len(self.requests)}".encode()
        request.send_response(200)
        request.send_header("content-length", str(len(answer)))
        request.end_headers()
        request.wfile.write(answer)


async def _get(path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nkey: {nl.key()}\r\npid: {os.getpid()}\r\n\r\n".encode())
        await writer.drain()
        return (await reader.read()).rpartition(b"\r\n")[2].decode()
    finally:
        writer.close()


async def other_way(question: str) -> str:
    """Ask the alternative."""
    return await _get("/second")


@nl.decision(
    name="hedged",
    alternatives=[other_way],
    hedge=nl.Hedge(after=0.05, budget=1.0),
    retry=nl.Retry(attempts=1),
)
async def first_way(question: str) -> str:
    """Ask the first one."""
    return await _get("/first")


@nl.agent(name="hedged.asks")
async def asks() -> str:
    """Ask once."""
    return await first_way("why?")


class OutcomeStore(KillingStore):
    """A store that dies before or after the commit of an outcome."""

    def __init__(self, store: object, moment: Moment) -> None:
        super().__init__(store)
        self._moment = moment

    def _trapped(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        if name != "commit" or not self._moment.endswith("the record"):
            return method

        def commit(commits: Any, *args: Any, **kwargs: Any) -> Any:
            is_outcome = any(record.kind is Kind.RESULT for one in commits for record in one.records)
            if is_outcome and self._moment.startswith("before"):
                kill_self()
            found = method(commits, *args, **kwargs)
            if is_outcome:
                kill_self()
            return found

        return commit


def life(home: str, port: int, moment: Moment = "") -> dict[str, Any]:
    """Start or resume the run, and work to its end."""
    global PORT  # noqa: PLW0603
    PORT = port
    store = OutcomeStore(open_brisk(Path(home)), moment)

    async def main() -> dict[str, Any]:
        async with nl.Runtime(cast("Any", store), process=ProcessOptions(is_dedicated=True)) as rt:
            run = await rt.start(asks, id="run")
            await rt.work(until_idle=True)
            records = store.load_journal("run").records
            return {
                "result": await run.result(),
                "outcomes": sum(one.kind is Kind.RESULT for one in records),
            }

    return asyncio.run(main())
