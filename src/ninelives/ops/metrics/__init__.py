"""Metrics from the store, for Prometheus; see docs/metrics.md.

- `families`: every metric, declared once; `reading`: all that one scrape reads of a store
- `exposition`: a reading as metrics, with the store's `counters`, and `reports` of audits and replicators
- `server`: serve them over HTTP; `listening`: note that a machine cannot
- `rules`: the alert rules, `rule_files`: as files; `grafana`: the dashboard
"""
