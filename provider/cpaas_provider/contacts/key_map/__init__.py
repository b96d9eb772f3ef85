"""The key map: which row of the contact list belongs to which key of a source."""
