"""Who must not be sent to, and how often recipients were sent to: by keyed hashes alone."""
