"""The whole fault programme: every campaign on every durable store, one report, and the page made of it."""
