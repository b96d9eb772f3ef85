"""Delivery reports of permanent failures: which they are, and what they do to the suppression list."""
