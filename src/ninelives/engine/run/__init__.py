"""One run in memory: its phase, its branches, the order of what they learn.

- `execution`: a run that is being executed; `lease`: until when its process may act
- `identity`: which record a call finds; `delivery`: in which order recorded and fresh outcomes are
  delivered
- `quiescence`: whether the event loop is idle for this run; `run_threads`: threads that run a run's code
- `waits`: durable waits; `eviction`: a run leaves memory; `cancelled_steps`: steps that the agent's code
  cancelled
- `intents`, `large_bodies`, `call_site`, `foreign_timers`: smaller helpers of these
"""
