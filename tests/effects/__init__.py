"""Effects against a service outside, and lives that are killed around them."""
