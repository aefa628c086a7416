"""The pure core: no I/O, no clock, no asyncio. Each package or module may import those after it.

- `rules`: a row in, a row out; `journal`: records and replay; `model`: rows; `values`: encoding
- `ids`: names, ids and idempotency keys; `errors`: the error tree; `step_ids`: the text form of step ids
- `clock`: the clock protocol; `durations`: 90s, 15m, 30d; `secret`: values that nothing shows
- `governance`: what a policy is asked and answers, accounts, breakers; `model_calls`: hedges, caches and ways
  to ask, and the arithmetic of these
"""
