"""Data of each released format, and that it is read, migrated and carried on."""
