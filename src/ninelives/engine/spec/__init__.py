"""What users declare, read once at declaration.

- `registry`: steps and agents by name; `protection`: how an action is protected; `transactions`: users'
  databases
- `agent_arguments`, `methods`, `functions`: signatures; `argument_changes`: arguments that a body changed
- `callbacks`: users' functions that are called beside bodies (verify, key, predicates, upgrade)
"""
