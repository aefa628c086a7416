"""Metrics, alerts and the dashboard, judged by a real Prometheus and a real Alertmanager."""
