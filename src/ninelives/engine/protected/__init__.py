"""Actions that must not be repeated blindly.

- `non_resumable`: from the intent to the outcome; `protected_call`: one such call; `business_keys`: keys
  across runs
- `doubt`: a start whose outcome is unknown; `verify_probe` asks the world, `doubt_inbox` asks a person
- `left_processes`: what a dead worker left at work; `body_guard`: an async body goes on only while its
  lease holds
- `open_starts`: starts that the code no longer asks for; `fork_reuse`: what a fork takes over from its
  parent
"""
