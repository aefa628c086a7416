"""How model calls are answered: several ways to ask, second requests, and answers that are reused.

- `ways`: one attempt of a call, over its ways; `race`: requests under way, and which of them answers
- `install`: what the executions of a runtime share
"""
