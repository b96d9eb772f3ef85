"""What happens in a call of a notifier, and in the background sender of the API server."""
