"""Faults on demand: the rules, and their effects on the wire."""
