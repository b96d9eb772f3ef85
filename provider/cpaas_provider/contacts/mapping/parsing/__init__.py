"""Parsers of source values, one for each column type."""
