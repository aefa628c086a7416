"""One trial: a run of the user's agent, through as many processes as its scenario takes.

- `trial` runs it; `scenarios`: which faults, process by process; `fork_server`: starts the processes
- `work_tree`, `scratch_store`, `proxy`: a copy of the files, an empty store, and recorded HTTP requests
"""
