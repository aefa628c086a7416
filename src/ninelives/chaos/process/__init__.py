"""Inside a process of a trial.

- `trial_process`: its main function; `fault_injection`: kills, stops and store failures; `clock`: time
  that is skipped
- `step_probe`: bodies that begin and end; `effect_recorder`: files, sockets, requests and processes that
  are touched
"""
