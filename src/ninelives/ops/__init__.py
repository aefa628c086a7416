"""Operators' tools.

- `doctor`: is a store writable, durable and healthy; `check`: does new code fit the runs in flight
- `snapshot`: everything stored of one run, in one file
"""
