"""What the trials found.

- `effects`: the side effects of a trial; `repeated_effects`: those that were repeated
- `detectors`, `finding`: what in the user's code is not crash-safe; `source_code`: what its lines say
- `metrics`: the four numbers
"""
