"""The sync of a contact list: read, compare, decide, send, report."""
