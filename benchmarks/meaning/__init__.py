"""Answers by meaning, evaluated: `python -m benchmarks.meaning`."""
