"""What the commands for operators do; their options are in `cli/commands_operate.py`.

- `status`, `usage`, `savings`: read; `metrics`: also `alerts` and `grafana`; `notify`
- `bulk`: `retry`, `pause`, `resume` and `cancel` of many runs (options: `cli/commands_people.py`)
- `audit`, `retention` (also `compact`), `replication` (also `backup`, `restore`): of `ninelives store`
- `cache`: `report` and `clear` of `ninelives cache`
- `transfer`: `export`, `import`, `move`
"""
