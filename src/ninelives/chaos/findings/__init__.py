"""What the trials found.

- `effects`, `repeated_effects`: what was done too often; `own_crashes`: deaths of our own code
- `detectors`, `finding`: what is not crash-safe; `source_code`: where; `metrics`: the four numbers
"""
