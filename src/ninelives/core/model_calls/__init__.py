"""Calls of models, pure: what steps declare of them, what is recorded of them, and the arithmetic.

- `declarations`: `Hedge` and `Cache`, as they are declared; `answered`: how a call was answered
- `latency`: the latest latencies of a way; `hedge_budget`: how many more requests may be sent;
  `way_breaker`: which way rests; `faults`: whose fault an error is
- `normal_form`: which wordings are one question; `cached_answer`: what is kept of an answer, and its name;
  `used_answers`: what a run may still do that has used one
- `meaning`: answers to questions that mean the same, verified
"""
