"""Actions that must not be repeated blindly.

- `non_resumable`: from the intent to the outcome; `protected_call`: one such call; `business_keys`: keys
  across runs
- `doubt`: a start whose outcome is unknown; `verify_probe` calls `verify=`, `doubt_inbox` asks a person
- `left_processes`: processes that a dead worker left running; `body_guard`: an async body continues only
  while the lease holds
- `open_starts`: starts without an outcome that no call claims; `fork_reuse`: results that a fork reuses from
  its parent run
"""
