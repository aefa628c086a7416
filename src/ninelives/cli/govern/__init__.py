"""What the commands that govern runs do.

- `policy`: `policy check`, `policy test`, `policy show`, `policy try`; `policy_reports`: what they print
- `audit_log`: the options of `audit`; `audit_log_commands`: what it does
- `budgets`: `budget show`, `set`, `raise`
- `halts`: `halt`, `unhalt`, `halts`
- `signed_answer`: `approve` and `deny` with a signature; `approvers`: check a file of approvers
"""
