"""A cluster on the loopback address, whose workers share no file; a worker is killed in the middle of the work."""
