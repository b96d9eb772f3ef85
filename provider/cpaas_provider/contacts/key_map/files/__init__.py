"""The files of a key map: exports, lists of an existing contact list, and decisions about unknown creations."""
