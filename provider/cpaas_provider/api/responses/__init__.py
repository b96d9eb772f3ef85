"""What a response means: the resource, or the error with its outcome."""
