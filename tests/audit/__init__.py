"""Periodic work, the audit of a store, and what recoveries saved: real processes, real kills, real damage."""
