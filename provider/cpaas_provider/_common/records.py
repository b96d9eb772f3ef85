"""The base of records that hold something private."""

from __future__ import annotations

from msgspec import Struct


class PrivateRecord(Struct, frozen=True):
    """A record whose ``repr`` shows no values: one of them is a secret, a number or a text."""

    __repr__ = object.__repr__
