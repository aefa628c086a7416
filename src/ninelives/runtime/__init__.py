"""The façade and only composition root: it connects stores, committers, workers and handles.

- `runtime`: `nl.Runtime`; `script`: `nl.run`; `run`, `inbox`: handles to runs and items; `blocking`: the
  same for plain code; `halt_calls`: halts
- `run_creation`: new runs; `run_here`: create a run, and work on it in this process
- `store_calls`: what handles need of a runtime; `wakeups`: wait for the store's wake-ups; `output_reader`: a
  run's output
- `agent_loader`: import the user's code; `target`: the agent and the arguments on a command line
"""

from ninelives.runtime.inbox import InboxItem
from ninelives.runtime.run import Run
from ninelives.runtime.runtime import ProcessOptions, Runtime
from ninelives.runtime.script import run

__all__ = ["InboxItem", "ProcessOptions", "Run", "Runtime", "run"]
