"""Waits and controls of runs with real processes that are really killed."""
