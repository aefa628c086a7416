"""`python -m benchmarks.model_server`: a model server with heavy-tailed latencies, for the real clients.

It answers `/v1/chat/completions` as OpenAI does and `/v1/messages` as Anthropic does. How long an answer
takes is drawn from a lognormal distribution, and 2 % of them stall (Pareto), as measured at providers; all
times are scaled to a median of 60 ms. Its first line says where it listens. Commands come on stdin, one line
each: `count` prints how many requests of each path came since the last one; `slow PATH SHARE` makes that
share of a path's requests eight times as slow. It ends with its stdin.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import sys
from collections import Counter

MEDIAN_SECONDS, SIGMA = 0.060, 0.35
STALLED, STALL_SECONDS, STALL_SHAPE, LONGEST_SECONDS = 0.02, 0.36, 1.1, 6.0
SLOWER = 8.0
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
OPENAI, ANTHROPIC = "/v1/chat/completions", "/v1/messages"


class ModelServer:
    """What it has been asked, and how slow it is."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._requests: Counter[str] = Counter()
        self._slow: dict[str, float] = {}

    def seconds(self, path: str) -> float:
        """Draw how long an answer takes."""
        found = self._random.lognormvariate(math.log(MEDIAN_SECONDS), SIGMA)
        if self._random.random() < STALLED:
            found = min(LONGEST_SECONDS, STALL_SECONDS * self._random.paretovariate(STALL_SHAPE))
        return found * (SLOWER if self._random.random() < self._slow.get(path, 0.0) else 1.0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, until its client closes it."""
        try:
            while line := await reader.readline():
                path, size = line.split()[1].decode().partition("?")[0], 0
                while (header := await reader.readline()).strip():
                    name, _, value = header.partition(b":")
                    size = int(value) if name.lower() == b"content-length" else size
                await reader.readexactly(size)
                self._requests[path] += 1
                await asyncio.sleep(self.seconds(path))
                body = json.dumps(ANSWERS[path]).encode()
                writer.write(HEAD % len(body) + body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # a cancelled request closes its connection; at the end the server cancels what waits
        finally:
            writer.close()

    def command(self, line: str) -> str:
        """Carry out a line of stdin; return what to print."""
        word, *rest = line.split()
        if word == "slow":
            self._slow[rest[0]] = float(rest[1])
            return "ok"
        found, self._requests = json.dumps(self._requests), Counter()
        return found


ANSWERS = {
    OPENAI: {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}
        ],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
    },
    ANTHROPIC: {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "yes"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 12, "output_tokens": 3},
    },
}


async def main() -> None:
    """Serve until stdin ends."""
    model = ModelServer(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    server = await asyncio.start_server(model.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(model.command(line), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
