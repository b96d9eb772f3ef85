"""The service of contract.md as a local program: an HTTP server to run DAGs against, with an inbox page.

Written from the contract alone. It imports nothing of the provider, and nothing of the provider imports it.
Start it with ``cpaas-sandbox --port 8085 --api-key KEY``.
"""
