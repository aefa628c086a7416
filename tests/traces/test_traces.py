"""A run that is killed five times is one trace, whose parents all resolve."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PROGRAM = """
    import os, signal, sys, pathlib
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    import ninelives as nl
    from ninelives.ops import traces

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=sys.argv[2])))
    trace.set_tracer_provider(provider)
    traces.enable()
    mine, dies = trace.get_tracer("mine"), sys.argv[3]

    def die(n):
        if str(n) == dies:
            os.kill(os.getpid(), signal.SIGKILL)

    @nl.decision
    async def think(n: int) -> dict:
        with mine.start_as_current_span("my-http"):
            pass
        return {"model": "gpt-9", "usage": {"input_tokens": 3, "output_tokens": 4}}

    @nl.action
    async def act(n: int) -> int:
        die(n)
        return n

    @nl.action
    def plain(secret: str) -> int:
        with mine.start_as_current_span("my-plain"):
            return 1

    @nl.action(retry=nl.Retry(attempts=1))
    async def broken(secret: str) -> None:
        raise ValueError(secret)

    @nl.agent
    def child() -> int:
        return plain("s3cret")

    @nl.agent
    async def agent() -> int:
        await think(0)
        for n in range(5):
            await act(n)
        try:
            await broken("s3cret")
        except Exception:
            pass
        return await (await nl.spawn(child)).result()

    print(nl.run(agent, id="r", store="sqlite:///" + sys.argv[1]))
"""


@pytest.fixture
def received() -> Iterator[tuple[str, list[Any]]]:
    spans: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = ExportTraceServiceRequest()
            request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    spans.extend(scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", spans
        server.shutdown()


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_a_run_killed_five_times_is_one_trace(tmp_path: Path, received: tuple[str, list[Any]]) -> None:
    url, spans = received
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    for dies in ("0", "1", "2", "3", "4", "never"):
        ran = subprocess.run(
            [sys.executable, str(program), str(tmp_path / "runs.db"), url, dies],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert ran.returncode == (0 if dies == "never" else -signal.SIGKILL), ran.stderr
    assert ran.stdout.split() == ["1"]
    ours = [one for one in spans if attributes(one).get("ninelives.run") == "r"]
    assert len({one.trace_id for one in ours}) == 1
    trace = [one for one in spans if one.trace_id == ours[0].trace_id]
    known = {one.span_id for one in trace}
    assert all(one.parent_span_id in known for one in trace if one.parent_span_id)
    (root,) = [one for one in trace if not one.parent_span_id]
    assert root.name == "invoke_workflow agent"
    lives = {one.span_id: attributes(one) for one in trace if one.name == "invoke_agent agent"}
    assert len({one["ninelives.epoch"] for one in lives.values()}) == len(lives) >= 6
    died = [one for one in lives.values() if one.get("error.type") == "worker_died"]
    assert len(died) == 5
    steps = [attributes(one)["ninelives.step"] for one in trace if "ninelives.step" in attributes(one)]
    assert len(steps) == len(set(steps)) == 7  # one decision, five actions, one that fails
    (chat,) = [one for one in trace if one.name == "chat gpt-9"]
    assert attributes(chat)["gen_ai.usage.output_tokens"] == 4
    (http,) = [one for one in trace if one.name == "my-http"]
    assert http.parent_span_id == chat.span_id
    (failed,) = [one for one in trace if one.name == "execute_tool broken"]
    assert attributes(failed)["error.type"] == "ValueError"
    assert failed.status.code == 2
    sixth = next(
        one for one in trace if one.name == "invoke_agent agent" and "error.type" not in attributes(one)
    )
    (replayed,) = [event for event in sixth.events if event.name == "ninelives.replayed"]
    counts = {one.key: one.value.int_value for one in replayed.attributes}
    assert counts == {"steps": 5, "decisions": 1, "tokens": 7}
    (of_child,) = [one for one in spans if one.name == "invoke_agent child"]
    assert of_child.trace_id != root.trace_id
    assert (root.trace_id, root.span_id) in [(one.trace_id, one.span_id) for one in of_child.links]
    (plain,) = [one for one in spans if one.name == "execute_tool plain"]
    (inner,) = [one for one in spans if one.name == "my-plain"]
    assert inner.parent_span_id == plain.span_id
    assert not any(b"s3cret" in one.SerializeToString() for one in spans)
