"""One try of a contact sync, and rows that are created once."""
