"""Operators' tools.

- `doctor`: is a store writable, durable and healthy; `check`, `check_advice`: does new code fit runs
- `snapshot`: everything stored of one run, in one file; `traces`: spans for OpenTelemetry
- `metrics`: metrics, alert rules and a dashboard, for Prometheus and Grafana
- `transfer`: runs on the way from one store to another; `replication`: copies in a bucket, and restores
- `notify`: notices to people, by webhook, Slack, mail and apprise
- `periodic`: do something at an interval, in one process at a time
- `status`, `status_facts`, `status_problems`: is the fleet healthy, and if not, why
- `recovery_numbers`: how fast and how soundly runs recover; `disk_growth`: how fast the store grows
- `retention`: remove what is old
- `audit`: everything that a store holds, read and checked again and again
- `spending`: what models were used for, and what recoveries saved
"""
