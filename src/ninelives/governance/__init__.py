"""What governs runs: policies, budgets, halts, breakers, rates, the audit log, approvers.

`engine.governor.Governor` is the seam: the engine asks it before calls. The runtime sets one.

- `install`: makes the governor of a runtime; `governor`: asks its parts, and fails closed; `parts`: the
  protocols of these; `background`: the thread for its calls of the store
- `policy`, `budgets`, `approvers`: parts with a package of their own; `audit_log`: what was decided, kept
- `halts`: what must not go on; `halt_changes`: declare and lift halts; `trips`: halts that declare themselves
- `breakers`: wait after failures; `limits`: rates, depth, children; `names`: patterns of actions in all these
- `rates`: what providers take; `enforced`: which policy each worker enforces
"""
