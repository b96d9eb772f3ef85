"""The stored suppression list, and counts of messages to recipients. Recipients are stored as keyed hashes only."""
