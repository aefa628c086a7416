"""Anchors: tree heads of the audit log, kept outside the store.

- `heads`: tree heads as signed notes
- `anchors`: keep them, and refuse a log that does not continue the last one
- `git_anchor`: a git repository as an anchor
"""
