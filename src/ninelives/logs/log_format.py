"""How the log is written; on its own, since the command line needs it before anything else."""

from __future__ import annotations

from enum import StrEnum


class LogFormat(StrEnum):
    """How the log is written."""

    TEXT = "text"
    JSON = "json"
