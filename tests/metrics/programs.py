"""Prometheus, promtool and Alertmanager from Debian packages. A missing one is named, never passed over."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.servers import fetch


class Missing(RuntimeError):
    """A program that cannot be had here, and why."""


@cache
def prometheus() -> Path:
    """Return Prometheus. Raises Missing."""
    return _program("prometheus", "prometheus")


@cache
def promtool() -> Path:
    """Return promtool. Raises Missing."""
    return _program("prometheus", "promtool")


@cache
def alertmanager() -> list[str]:
    """Return the words that start Alertmanager. Raises Missing.

    Debian's build reads its templates from /usr/share. They are put there for this process only.
    """
    program = _program("prometheus-alertmanager", "prometheus-alertmanager")
    share = program.parents[1] / "share"
    mounted = f'mount --bind "{share}" /usr/share && exec "$@"'
    words = ["unshare", "-m", "sh", "-c", mounted, "alertmanager", str(program)]
    try:
        done = subprocess.run([*words, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise Missing(f"Alertmanager cannot be started: {error}") from error
    if done.returncode:
        raise Missing(f"Alertmanager cannot be started: {done.stderr[-300:]}")
    return words


def _program(package: str, name: str) -> Path:
    try:
        return fetch.debian(package) / "usr" / "bin" / name
    except RuntimeError as error:
        found = shutil.which(name)
        if found is None:
            raise Missing(str(error)) from error
        return Path(found)


def needed(*wanted: object) -> None:
    """Skip the test, with the name of what is missing, unless all these programs can be had."""
    for one in wanted:
        try:
            one()  # type: ignore[operator]
        except Missing as error:
            pytest.skip(f"NOT RUN: {error}")
