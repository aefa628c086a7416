"""Planted: a `finally` removes a draft, also when only the worker stops and the run goes on elsewhere."""

from pathlib import Path

import ninelives as nl


@nl.action
async def draft(ticket: str) -> str:
    Path("draft.txt").write_text(ticket)
    return "draft.txt"


@nl.action
async def send(path: str) -> int:
    return len(Path(path).read_text()) if Path(path).exists() else -1


@nl.agent
async def support(ticket: str) -> int:
    path = await draft(ticket)
    try:
        return await send(path)
    finally:
        Path(path).unlink(missing_ok=True)  # MISTAKE
