"""Runs whose rows are damaged: skipped by calls that read the rows of many runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from ninelives.core.errors import Corrupt
from ninelives.stores.shared import rows
from ninelives.stores.shared.rows import decoding
from ninelives.stores.sqlite.files.database import Database
from ninelives.stores.sqlite.transaction import Transaction

Answer = TypeVar("Answer")


class DamagedRuns:
    """The damaged runs that one process has found, by number."""

    def __init__(self, files: Database) -> None:
        self._files = files
        self._numbers: set[int] = set()

    @property
    def numbers(self) -> str:
        """Their numbers, as a JSON list."""
        return msgspec.json.encode(sorted(self._numbers)).decode()

    def write(
        self,
        work: Callable[[Transaction, str], Answer],
        suspects: Callable[[Transaction], list[int]],
        *,
        urgent: bool = False,
    ) -> Answer:
        """Write something that reads the rows of many runs; skip damaged rows and do it once more.

        One damaged run must not hold up the others. Raises Corrupt when the damage is not in a run's row.
        """
        try:
            return self._files.write(lambda tx: work(tx, self.numbers), urgent=urgent)
        except Corrupt:
            found = {number for number in self._files.read(suspects) if self._is_damaged(number)}
            if found <= self._numbers:
                raise
            self._numbers |= found
            return self._files.write(lambda tx: work(tx, self.numbers), urgent=urgent)

    def _is_damaged(self, number: int) -> bool:
        def work(tx: Transaction) -> None:
            row = tx.one("read_run_by_number", (number,))
            with decoding("a run's row"):
                if row is not None:
                    rows.run_of(row)

        try:
            self._files.read(work)
        except Corrupt:
            return True
        return False
