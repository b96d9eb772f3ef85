"""Injected faults: the rules that choose them, and their effects on the response."""
