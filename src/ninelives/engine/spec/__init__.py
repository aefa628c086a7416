"""Declarations of users: agents, steps and their options, checked once when they are declared.

- `registry`: steps and agents by name; `options`: those of a step; `protection`: how an action is protected;
  `transactions`: actions in users' own databases; `model_calls`: the ways to ask a model
- `agent_arguments`, `methods`, `functions`: signatures; `argument_changes`: warn when a body changes its
  arguments
- `inner_calls`: the steps that a step's code calls
- `callbacks`: call users' other functions safely (verify, key, predicates, upgrade)
"""
