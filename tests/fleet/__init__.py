"""Fleets under fire: workers and supervisors killed and stopped in every window, judged from outside."""
