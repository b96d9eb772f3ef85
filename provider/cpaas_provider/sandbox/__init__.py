"""The service of INTERFACE.md as a program of its own: a real HTTP server to run against, with an inbox to look into.

Written from the contract alone; it imports nothing of the provider and nothing of the provider imports it.
Start it with ``cpaas-sandbox --port 8085 --api-key KEY``.
"""
