"""The supervisor and its workers, as real processes."""
