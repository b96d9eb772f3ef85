"""The service of INTERFACE.md: operations, requests, responses, errors, OpenAPI."""
