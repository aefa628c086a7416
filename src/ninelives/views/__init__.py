"""A run in words, for the API, the command and later the dashboard. Read-only.

- `checkpoint`: what is durable of a run; `history`: its records; `position`: rows of `ps` and the page of
  `show`
- `records_text`, `inbox_text`, `recovery_text`, `recoveries`: texts; `sessions`: which workers live
- `escape`: text made safe for a terminal
"""
