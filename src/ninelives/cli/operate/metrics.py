"""`ninelives metrics`, `alerts`, `grafana`: what Prometheus and Grafana need."""

from __future__ import annotations

import os
from contextlib import suppress

import typer

from ninelives.cli.output import emit, say
from ninelives.core.errors import NineLivesError, StoreError, UsageError
from ninelives.engine.machine import host as this_host
from ninelives.ops.metrics import listening
from ninelives.ops.metrics.reading import ReadingSource
from ninelives.ops.metrics.server import MetricsServer
from ninelives.stores.open import open_store
from ninelives.supervisor.protocol import SUPERVISOR_MARK

_EXIT_INTERRUPTED = 130


def serve(url: str, host: str, port: int) -> None:
    """Serve metrics until stopped. A server's store that does not answer is waited for."""
    try:
        from ninelives.ops.metrics import exposition  # noqa: F401 (only whether it can be imported)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"metrics need prometheus-client: {error}", remedy="pip install 'ninelives[metrics]'"
        ) from error
    source = ReadingSource(url)
    try:
        source.open()
    except StoreError as error:
        # Machines start in any order. A scrape says that the store is away.
        say(f"{type(error).__name__}: {error}")
    try:
        made = MetricsServer(host, port, source, say)
    except UsageError as error:
        _note(url, str(error))
        raise
    _note(url, "")
    with made as server:
        name = f"[{host}]" if ":" in host else host
        say(f"metrics at http://{name}:{server.server_address[1]}/metrics")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            raise typer.Exit(_EXIT_INTERRUPTED) from None


def _note(url: str, fault: str) -> None:
    """Note beside `up` whether metrics are served: what this process prints is in a log there."""
    if SUPERVISOR_MARK in os.environ:
        with suppress(NineLivesError, OSError):
            store = open_store(url)
            try:
                listening.note(store, this_host(), fault)
            finally:
                store.close()


def alerts(kind: str, runbook: str) -> None:
    """Print the alert rules."""
    from ninelives.ops.metrics import rule_files

    emit(rule_files.written(kind, runbook))


def grafana() -> None:
    """Print the dashboard."""
    import json

    from ninelives.ops.metrics.grafana import dashboard

    emit(json.dumps(dashboard(), indent=2))
