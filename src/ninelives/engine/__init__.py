"""What moves runs: so far the committer."""
