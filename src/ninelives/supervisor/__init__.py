"""The supervisor of `ninelives worker` and `ninelives up`: starts, watches and restarts worker processes.

- `supervisor`: the main loop; `slot`: one worker's slot and its restart pauses
- `process`: a worker process as the supervisor sees it; `worker_process`: its main function
- `protocol`: messages between the two; `evidence`: what a death looked like
- `supervisor_session`: the supervisor's session in the store, and the sessions of its dead workers
- `companions`: other commands that `up` keeps running; `companion_process`: how such a process begins
- `descendants`: find and kill what a dead worker started
- `halted_workers`: which workers a halt ends

See docs/decisions/0009 for which processes may declare a session dead.
"""
