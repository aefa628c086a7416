"""Runs as data and text for people: for the API, the command and later the dashboard. Read-only.

- `checkpoint`: what is durable of a run; `history`: its records; `position`: the rows of `ps` and the page of
  `show`
- `records_text`: journal records as text; `inbox_text`: inbox items; `recoveries`, `recovery_text`: the
  recovery log
- `sessions`: which workers are alive; `escape`: text made safe for a terminal
"""
