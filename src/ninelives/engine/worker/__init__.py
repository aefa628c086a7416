"""A worker: claims runs, executes them, and ends, parks or escalates them.

- `worker`: the main loop and the claims; `executor`: one claimed run, from its journal to its end;
  `session`: the worker's session in the store
- `takeover`: a run left by a dead worker; `stranded`: runs that the session owns and does not execute;
  `news`: signals, answers and controls for running runs
- `ending`, `escalation`, `quarantine`, `run_retry`, `fork`: how a run ends, stops or continues
- `event_loop`, `gc_tuning`: settings of the event loop and the process
"""
