"""Policies: what may be done, decided before anything of a call happens.

- `file`: a policy file as it is written; `declared`: the steps and agents that it is checked against
- `language`: the conditions of rules; `rules`: bound to actions; `tables`: the tables that others check
- `judge`: a loaded file; `functions`: `@nl.policy`; `combined`: several, of which the strictest wins
- `canary`: proof that the gate stands; `protocol`: what every policy is
- `cases`: `[[test]]` tables; `history`: what a policy would have done; `kept`: texts in the store
- `cedar`, `acs`: policies of Cedar and of the Agent Control Specification
"""
