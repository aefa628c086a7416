"""How a notice leaves.

- `choice`: which module delivers for a channel; `attempt`: what came of an attempt, and its time limit
- `webhooks`: webhooks and Slack, by HTTP; `mail`: SMTP; `others`: everything else, by apprise,
  each attempt in an `apprise_process`
"""
