"""Code that runs inside a process of a trial.

- `trial_process`: its main function; `fault_injection`: kills, stops and store failures
- `step_probe`: logs when bodies begin and end; `effect_recorder`: logs files, sockets, requests, programs
- `clock`: skips the time that runs sleep
"""
