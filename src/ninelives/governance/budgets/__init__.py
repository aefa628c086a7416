"""Budgets: tokens, money, actions and time that cannot be charged twice, nor overrun.

- `declarations`: `[[budget]]` tables of a policy file, checked; `windows`: minute, hour, day, month
- `account_names`: the account of a scope's value in a window; `estimates`: what a call reserves
- `settlements`: what a call has spent; `prices`: what tokens cost; `budgets`: what the governor asks
- `making`: the budgets of a process; `publication`: what is declared, for commands and metrics
- `standings`: what was spent, of all accounts; `changes`: set, raise; `cleanup`: windows that are over
"""
