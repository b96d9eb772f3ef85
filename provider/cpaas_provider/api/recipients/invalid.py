"""The errors of values that are no recipients."""

from __future__ import annotations


class InvalidRecipientError(ValueError):
    """The value cannot be read as one recipient. The message gives the reason, never the value."""


class InvalidMsisdnError(InvalidRecipientError):
    """The value cannot be read as one phone number. The message gives the reason, never the value."""
