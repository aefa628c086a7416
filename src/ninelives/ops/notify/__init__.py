"""Notices to people: what waits for them, what failed, what went wrong. See docs/notifications.md.

- `config`: the file that names the channels; `kinds`: what may be reported, and how severe it is
- `events`: what is there to report, read from the store; `outages`: runs that retry one error for long
- `retries`: runs that retry a step, by the kind of their error, also for status
- `outbox`: which notices were sent, durable; `entry`: one of them; `notice`: its text
- `sender`: delivers the outbox of one channel; `notifier`: all of it, until stopped
- `channels`: how a notice leaves: webhooks, Slack, mail, apprise
- `state`: the document `notify/state`, for status and metrics
"""
