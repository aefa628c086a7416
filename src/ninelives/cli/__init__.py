"""The command line.

- `app`: the commands, their options and exit codes; `commands_people`: those by which people start, answer
  and control runs; `commands_operate`: those for operators; `help_groups`: the groups of `--help`
- `commands`, `operate`: what each command does; `govern`: the commands that govern runs
- `options`: options that commands share; `output`: tables, text and JSON; `up_screen`: the screen of `up`
- `stopping`: commands that work until a signal comes
"""
