"""The base of the sandbox: database, clock, settings, account and counters."""
