"""What is logged of runs, and how: one line for each thing that happens to a run, with its fields.

- `run_log`: the observer that logs; `fields`: the current run and step on every record
- `log_format`: text or JSON; `formats`: a record as a line; `output`: where lines go, which stops no worker
"""
