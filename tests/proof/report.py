"""What a campaign came to, in a file: so that many of them make one page."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

Status = Literal["held", "violated", "not run"]


class Result(Struct):
    """What a section came to."""

    name: str
    status: Status
    numbers: str
    seconds: float = 0.0
    kills: int = 0
    violations: list[str] = []
    windows: dict[str, int] = {}


class Report(Struct, frozen=True, kw_only=True):
    """What one campaign came to on one store; `again` is the command that repeats it.

    `commit` and `at` say of which code it is, and of which day: filled in by who runs the whole programme.
    """

    again: str
    store: str = ""
    seconds: float
    sections: list[Result]
    commit: str = "unknown"
    at: str = ""

    @property
    def is_violated(self) -> bool:
        """Tell whether anything was wrong."""
        return any(section.status == "violated" for section in self.sections)


def judged(name: str, numbers: str, violations: list[str], **more: object) -> Result:
    """Return a section that held, or did not."""
    status: Status = "violated" if violations else "held"
    return msgspec.convert(
        {"name": name, "status": status, "numbers": numbers, "violations": violations, **more}, Result
    )


def tell(section: Result) -> Result:
    """Say at once what a section came to, in the one form that the whole programme listens for."""
    spent = f" ({section.seconds:.0f} s)" if section.seconds else ""
    print(f"{section.status:8} {section.name}: {section.numbers}{spent}", flush=True)
    return section


def write(path: Path | None, report: Report) -> None:
    """Keep a report where it was asked for, if it was."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def read(path: Path) -> Report:
    """Return a report."""
    return msgspec.json.decode(path.read_bytes(), type=Report)
