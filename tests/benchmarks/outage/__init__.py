"""10,000 waits through an outage of the database, a restart and an edit of the connection."""
