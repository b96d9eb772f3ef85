"""Why the database could not be used, for DAG authors. No message shows a password."""

from __future__ import annotations


class StoreError(Exception):
    """Base of all database errors: the database cannot be reached, used or understood."""


class NoReportsThereError(StoreError):
    """The database cannot store delivery reports, so there is nothing to wait for."""


class RejectedDataError(StoreError):
    """The database rejected the values. It may accept others."""


class CampaignTakenError(StoreError):
    """Another task is working on the campaign."""


class CampaignChangedError(StoreError):
    """The stored campaign changed after it was read."""


class LeaseLostError(StoreError):
    """The task no longer holds the lease on the campaign. It must stop."""


class PartitionsChangedError(StoreError):
    """The campaign was started in another number of partitions. Each knows only its own recipients."""


class OtherServiceError(StoreError):
    """The campaign was started when its connection had another base URL."""
