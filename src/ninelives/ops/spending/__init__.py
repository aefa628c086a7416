"""What models cost: read from journals and the recovery log, and priced when it is shown.

- `usage`: tokens and money of model calls, by agent, day, model, step, run, tree, label
- `savings`: what recoveries saved, and what crashes cost
"""
