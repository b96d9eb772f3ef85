"""Waiting on the triggerer. Triggers only read; what they start again after a restart does no harm."""
