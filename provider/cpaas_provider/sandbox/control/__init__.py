"""The control API under /_control/, for tests and people; it asks for no key."""
