"""Actions that must not be repeated blindly.

- `non_resumable`: from the intent to the outcome; `protected_call`: one such call; `business_keys`: keys
  across runs
- `doubt`: a start whose outcome is unknown: `verify=` is asked, then a person, by `doubt_inbox`
- `left_processes`: processes that a dead worker left running
- `open_starts`: starts without an outcome that no call claims; `fork_reuse`: results that a fork reuses from
  its parent run
"""
