"""Where the delivery reports of a try go, and what is recorded of its requests."""
