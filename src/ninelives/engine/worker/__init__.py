"""A worker: claims runs, executes them, and ends them or hands them on.

- `worker`: claims and the loop; `executor`: one claimed run from its journal to its end; `session`: the
  worker's own
- `takeover`: a run left by a dead worker; `stranded`: runs that nothing here executes; `news`: for
  running runs
- `ending`, `escalation`, `quarantine`, `run_retry`, `fork`: how a run goes on or ends
- `event_loop`, `gc_tuning`: settings of the process
"""
