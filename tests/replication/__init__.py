"""Copies of stores in buckets: real servers, real SIGKILL. Long form: `python -m tests.replication`."""
