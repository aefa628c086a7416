"""One trial: a run of the user's agent through as many processes as its scenario takes.

- `trial`, `scenarios`, `fork_server`: its processes; `work_tree`, `scratch_store`, `proxy`: its
  surroundings
"""
