"""All trials.

- `plan` chooses them, `campaign` runs them, `comparison` holds each against a run without faults
"""
