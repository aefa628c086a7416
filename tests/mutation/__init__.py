"""Mutants: small changes of the rooms that the promises rest on, each of which a test must notice."""
