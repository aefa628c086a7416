"""The write path: from a draft to a verdict.

- `ticket`: what is handed to the committer, and the tail of a run that it moves
- `committer`: group commit of all runs of a process; `loop_commits`: the same as an event loop sees it
- `large_bodies`: bodies that were kept as blobs, put back into their records
"""
