"""Runs as data and text for people: for the API, the command and later the dashboard. Read-only.

- `checkpoint`: what is durable of a run; `position`: the rows of `ps` and the page of `show`
- `waiting`: what a run waits for; `interrupted`: what became of steps that a death interrupted
- `records_text`: journal records as text; `inbox_text`: inbox items; `recoveries`: the recovery log
- `sessions`: which workers are alive; `escape`: text made safe for a terminal
- `masking`: secrets are hidden
- `counted`: 1 run, 2 runs; `documents`: one, by its name, or all of a prefix
"""
