"""What holds for all requests of a connection, from whatever task or program: a stop."""
