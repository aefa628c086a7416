"""The functions and decorators that agents call: the `nl.*` names.

- `decorators`: agent, decision, action; `basics`: key, info, now, uuid, random, gather, map, branch,
  log, progress, patched, next_turn
- `timers`: sleep and timeout; `time_limits`: timeouts recorded in the journal; `signals`: receive
- `children`: spawn; `resources`: hold, with `resource_checks`; `output`: emit
- `compensations`: on_failure; `chat_history`: repair of transcripts after a crash
- `declassify`: remove labels of a run's taint
"""
