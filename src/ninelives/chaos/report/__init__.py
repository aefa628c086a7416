"""The report: `terminal`, `html` with `plots` and `timelines`; `command` puts all of it together."""
