"""The pure core: no I/O, no clock, no asyncio. Each package may import those after it.

- `rules`: a row in, a row out; `journal`: records and replay; `model`: rows; `values`: encoding
- `errors`, `ids`, `clock`
"""
