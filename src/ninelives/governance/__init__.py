"""What governs runs: policies, budgets, halts, breakers, rates, the audit log, approvers.

`engine.governor.Governor` is the seam: the engine asks it before calls. The runtime sets one.
"""
