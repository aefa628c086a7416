"""A store with things to report, and a notifier for it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw

from ninelives.core.journal.answers import ItemBody, write_item_body
from ninelives.core.model.commit import Change, End, Escalate, Outcome, Park
from ninelives.core.model.inbox import ItemKind, NewItem
from ninelives.core.model.run import Kind, RunRow, State
from ninelives.core.model.totals import Retrying, Tally
from ninelives.ops.notify.config import read_settings
from ninelives.ops.notify.entry import OutboxEntry, decode
from ninelives.ops.notify.notifier import Notifier
from ninelives.ops.notify.outbox import OUT
from tests.contract.makers import AnyStore, append, new_run, new_session

SECRET = "between us"
ENVIRONMENT = MappingProxyType({"HOOK_SECRET": SECRET})


class Scene:
    """Makes items, failures and retries in a store, as a worker would."""

    def __init__(self, store: AnyStore) -> None:
        self.store = store
        self._session = store.register_session(new_session("teller", lease_ms=2_592_000_000)).id

    @classmethod
    def of(cls, store: AnyStore) -> Scene:
        """Return a scene that only reads."""
        made = cls.__new__(cls)
        made.store = store
        return made

    def running(self, run: str, agent: str = "helper", **fields: Any) -> RunRow:
        self.store.create_runs([new_run(run, agent=agent, **fields)])
        (row,) = self.store.claim_runs(self._session, 1, {agent: 1}, only=run).runs
        return row

    def ask(
        self, item: str, *, kind: ItemKind = ItemKind.APPROVAL, what: str = "refund?", **body: Any
    ) -> None:
        """Open an item of a run of its own."""
        self.ask_all([item], kind=kind, what=what, **body)

    def ask_all(self, items: Sequence[str], *, kind: ItemKind, what: str, run: str = "", **body: Any) -> None:
        fields = {name: body.pop(name) for name in ("agent", "labels") if name in body}
        row = self.running(run or f"run of {items[0]}", **fields)
        opened = [
            NewItem(
                id=item,
                kind=kind,
                step="#refund#0",
                digest=b"d",
                body=write_item_body(ItemBody(what=what, **body)),
            )
            for item in items
        ]
        waits = Escalate("for a person", row.news) if kind is not ItemKind.APPROVAL else None
        self._commit(row, opens=opened, change=waits or Park(None, "for a person", row.news))

    def fail(self, run: str, error: str = "ValueError: no", **fields: Any) -> None:
        row = self.running(run, **fields)
        self._commit(row, b"{}", kind=Kind.END, change=End(State.FAILED), tally=Tally(last_error=error))

    def retry(self, run: str, error: str, **fields: Any) -> None:
        """Let a run retry a step."""
        row = self.running(run, **fields)
        known = Retrying("#think#0", 2, 5, self.store.now_ms() + 60_000, error)
        tally = Tally(last_error=error, retrying=msgspec.json.encode(known).decode())
        parked = Park(self.store.now_ms() + 60_000, "to try again", row.news)
        self._commit(row, b"{}", kind=Kind.LOG, change=parked, tally=tally)

    def answer(self, item: str) -> None:
        self.store.answer_item(item, digest=b"d", body=b'{"says":"approved"}', by="ada")

    def entries(self) -> list[OutboxEntry]:
        """Return the notices as they are in the store."""
        return [decode(one.body) for one in self.store.read_documents(OUT, limit=10_000)]

    def _commit(self, row: RunRow, *bodies: bytes, change: Change, **parts: Any) -> None:
        (verdict,) = self.store.commit([append(row, *bodies, change=change, **parts)])
        assert verdict.outcome is Outcome.COMMITTED, verdict


def command(words: Sequence[str]) -> str:
    """Write a command line, as the command does."""
    return shlex.join(["ninelives", *words])


def configure(directory: Path, text: str) -> Path:
    """Write a configuration file."""
    path = directory / "notify.toml"
    path.write_text(text)
    return path


def webhook(name: str, url: str, *more: str) -> str:
    """Return the table of a webhook."""
    lines = [f'name = "{name}"', f'url = "{url}"', 'secret_env = "HOOK_SECRET"', *more]
    return "\n".join(["[[channel]]", *lines, ""])


def notifier(
    store: Any, path: Path, environment: Mapping[str, str] = ENVIRONMENT, since_ms: int = 0
) -> Notifier:
    """Return a notifier for a configuration file."""
    return Notifier(store, read_settings(path, environment), command, lambda _line: None, since_ms)


def eventually(what: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def arguments(**values: Any) -> dict[str, Raw]:
    """Return the arguments of an action, as an item shows them."""
    return {name: Raw(msgspec.json.encode(value)) for name, value in values.items()}
