"""Notices: real receivers that fail, hang and vanish, and notifiers that are killed anywhere."""
