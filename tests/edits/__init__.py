"""Edits: random agents, random changes of their source, kills between, judged by a ledger outside."""
