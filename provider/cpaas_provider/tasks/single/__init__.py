"""One try of a single send: a message, a passcode, a purchase or a row."""
