"""Why the database could not be used, for DAG authors. No message shows a password."""

from __future__ import annotations


class DatabaseError(Exception):
    """Base of all database errors: the database cannot be reached, used or understood."""


class ReportsNotSupportedError(DatabaseError):
    """The database cannot store delivery reports, so there is nothing to wait for."""


class RejectedDataError(DatabaseError):
    """The database rejected the values. It may accept others."""


class CampaignLockedError(DatabaseError):
    """Another task is working on the campaign."""


class CampaignChangedError(DatabaseError):
    """The stored campaign changed after it was read."""


class LeaseLostError(DatabaseError):
    """The task no longer holds the lease on the campaign. It must stop."""


class PartitionsChangedError(DatabaseError):
    """The campaign was started in another number of partitions. Each knows only its own recipients."""


class OtherServiceError(DatabaseError):
    """The campaign was started when its connection had another base URL."""
