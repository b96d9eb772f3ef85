"""Why a contact list cannot be synced, for a DAG author. No message shows the contents of a row."""

from __future__ import annotations


class ContactsError(Exception):
    """Base of all of them.

    ``permanent`` means that a retry of the task would not help.
    """

    permanent = False


class MapMismatchError(ContactsError):
    """The key map belongs to another service, another table, or another key."""

    permanent = True


class NoMapError(ContactsError):
    """There is no key map of this name."""

    permanent = True


class UnfinishedImportError(ContactsError):
    """The key map holds a part of an import that was stopped."""

    permanent = True


class LeaseTakenError(ContactsError):
    """Another task works on the same part of the list now.

    :param owner: which one
    """

    def __init__(self, words: str, owner: str) -> None:
        super().__init__(words)
        self.owner = owner


class LeaseLostError(ContactsError):
    """The lease ended, and another task may have the list now. This one must not go on."""


class TooManyChangesError(ContactsError):
    """``max_changes`` or ``max_deletes`` stopped the sync before its first request."""

    permanent = True


class TooManyFailuresError(ContactsError):
    """More rows failed than ``max_failure_ratio`` allows."""

    permanent = True


class UnknownCreationsError(ContactsError):
    """The outcome of some creations is unknown, and with this ``on_unknown`` the task fails then."""

    permanent = True


class NotSyncedError(ContactsError):
    """Some rows could not be sent. The next try sends them."""


class SpoolError(ContactsError):
    """The worker's disk could not take the rows."""


class MapFileError(ContactsError):
    """A file cannot be imported into a key map, or a key map cannot be exported to it."""

    permanent = True


class CannotResolveError(ContactsError):
    """A creation cannot be resolved as it was asked for. Nothing was changed."""

    permanent = True


class ColumnsChangedError(ContactsError):
    """The columns of the contact table changed while rows were sent. The next try reads them again."""


class StoppedError(ContactsError):
    """The task was asked to stop, or its own time is over."""
