"""Measures of the source: `make house`. What it finds may get better, never worse (`maxima.toml`).

- `source`: modules, sizes, imports, cycles; `habits`: words, privates, patched globals
- `walks`: tiny programs that count modules, store calls and threads; `page`: the table and docs/house.md
"""
