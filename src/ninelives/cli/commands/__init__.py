"""What the commands do: a module for each, or for a group of related ones.

- `run`, `start`: create runs; `up`: also `worker`; `chaos`
- `ps`, `show` (also `snapshot`), `watch`, `recoveries`: read
- `inbox`: also `approve`, `deny`, `resolve`
- `control`: `signal`, `cancel`, `pause`, `resume`, `retry`, `fork`
- `check`, `doctor`, `store`: for operators
"""
