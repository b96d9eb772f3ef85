"""The control API under /_control/, for tests and for the inbox page."""
