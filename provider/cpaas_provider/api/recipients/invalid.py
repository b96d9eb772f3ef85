"""The error of a value that is no recipient."""

from __future__ import annotations


class InvalidRecipientError(ValueError):
    """The value cannot be read as one recipient. The message gives the reason, never the value."""
