"""Why the store could not be used, in words for a DAG author; none of them shows a password."""

from __future__ import annotations


class StoreError(Exception):
    """Base of all of them: the database cannot be reached, used or understood."""


class NoReportsThereError(StoreError):
    """The store is a database in which delivery reports are not kept, so there is nothing to wait for."""


class RejectedDataError(StoreError):
    """The database rejected the values it was given; with others it may go on."""


class CampaignTakenError(StoreError):
    """Somebody else works on the campaign now."""


class CampaignChangedError(StoreError):
    """What is kept for the campaign is not what it was when it was looked at."""


class LeaseLostError(StoreError):
    """The campaign is no longer ours to write to, so whoever is told this must not go on with it."""


class PartitionsChangedError(StoreError):
    """The campaign was begun in another number of partitions, each of which knows only whom it sent to itself."""


class OtherServiceError(StoreError):
    """The campaign was begun when its connection led to another base URL."""
