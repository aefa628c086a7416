"""The write path: from a draft to a verdict.

- `ticket`: a request to the committer and its answer; the `Tail` of a run, which the committer advances
- `committer`: group commit for all runs of a process; `loop_commits`: its interface for an event loop
- `large_bodies`: put bodies that are stored as blobs back into their records
- `sealing`: records for a store that encrypts
"""
