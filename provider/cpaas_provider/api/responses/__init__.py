"""Turns a response into a resource, or into the error with its outcome."""
