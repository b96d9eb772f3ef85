"""HTTP requests and responses of the receiver, bounded in size, time and number."""
