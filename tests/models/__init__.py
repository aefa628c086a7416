"""Model calls: several ways to ask, second requests, and answers that are reused."""
