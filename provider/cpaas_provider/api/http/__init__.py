"""Requests and responses as plain values, and the transports that carry them."""
