"""Measures of the source: `make house`. What it finds may get better, never worse (`maxima.toml`).

- `source`: modules, sizes, imports, cycles; `habits`: privates, patched globals; `words`: to avoid
- `walks`: tiny programs that count modules, store calls and threads; `page`: the table and docs/house.md
"""
