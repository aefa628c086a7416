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
    """What a program of its user imports."""
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
    imports="ninelives",
)
SYSTEMS: dict[str, System] = {system.name: system for system in (OURS,)}
