"""One run in memory: its state, its branches, and the order in which outcomes reach them.

- `execution`: a run that is being executed; `lifecycle`: its phase, its branches and its end; `current`: the
  execution that the calling code belongs to, and where that code is
- `identity`: which record a call finds; `lookup`: one call's search for its record
- `delivery`: in which order recorded and fresh outcomes are delivered; `quiescence`: whether the event loop
  is idle for this run, and which timers cancel its code
- `tasks`: branches, and how they end; `run_threads`: threads that run a run's code
- `branch_task`: a task of agent code; `waits`: durable waits, and steps that the code cancelled
- `output_buffer`: what steps emit; `intents`: starts of resumable steps
"""
