"""Tests of what governs runs."""
