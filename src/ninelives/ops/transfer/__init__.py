"""Runs on the way from one store to another (see docs/decisions/0029-capsules.md).

- `file`: the file format, written and read with bounds; `export`, `importing`: runs into such a file, and out
- `moving`: runs from store to store, so that they never run in both
"""
