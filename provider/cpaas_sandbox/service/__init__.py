"""The service of contract.md: operations, requests, responses, errors, OpenAPI."""
