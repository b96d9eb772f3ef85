"""The errors of the database. Their messages are for DAG authors and show no password."""

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


class TryReplacedError(LeaseLostError):
    """A newer try of the task instance has opened the journal. This one must stop."""


class PartitionsChangedError(DatabaseError):
    """The campaign was started with another number of partitions, and each partition knows only its own recipients."""


class OtherServiceError(DatabaseError):
    """The campaign was started when its connection had another base URL."""
