"""The journal: the intent before each request, the result after it, and the manual resolution of unknown outcomes."""
