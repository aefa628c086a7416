"""Calls of models, pure: what steps declare of them, what is recorded of them, and the arithmetic.

- `declarations`: `Hedge` and `Cache`, as they are declared; `answered`: how a call was answered
- `latency`: the latest latencies of a way; `hedge_budget`: how many more requests may be sent;
  `way_breaker`: which way rests; `faults`: whose fault an error is
"""
