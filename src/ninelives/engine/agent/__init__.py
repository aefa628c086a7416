"""What agents call: the `nl.*` names.

- `decorators`: agent, decision, action; `basics`: key, info, now, uuid, random, map, log, progress,
  patched, next_turn
- `timers`: sleep and timeout; `time_limits`: timeouts as part of the journal; `signals`: receive
- `children`: spawn; `resources`: hold, with `resource_checks`; `output`: emit
- `compensations`: on_failure; `chat_history`: transcripts that grow from turn to turn
"""
