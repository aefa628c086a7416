"""The language of conditions in policy files: a closed part of Python's expressions, checked before it runs.

- `sorts`: what is known of a value by its annotation; `conform`: what a value must be when it is read
- `errors`: refusals at load, and rules that cannot be evaluated
- `names`: what a condition can name: arguments, facts of the call; `functions`: what it can call
- `comparing`: comparisons; `compiler`: an expression into a typed closure; `ranges`: what can never be true
- `globs`: patterns with `*` and `?`
"""
