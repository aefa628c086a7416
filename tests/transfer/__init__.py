"""Runs that leave a store and arrive in another: files, hostile files, moves, kills."""
