"""Traces: what an OTLP receiver gets of runs that are killed."""
