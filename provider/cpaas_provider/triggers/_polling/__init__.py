"""One poller for all who wait on the same connection or database."""
