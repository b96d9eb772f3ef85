"""Requests for rows, and what the list has afterwards."""
