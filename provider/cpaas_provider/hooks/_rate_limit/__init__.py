"""The rate limit that all tasks of a connection share."""
