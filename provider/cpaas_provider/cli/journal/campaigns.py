"""The journals of campaigns with an idempotency_key: the commands read and change them in the provider's database."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any, Self

from airflow.state import get_state_backend
from sqlalchemy.orm import Session

from cpaas_provider.cli.journal.instances import Found, Instance, JournalError, rendered_fields, to_journal_error
from cpaas_provider.cli.messages.campaign_database import recorded_databases
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import CampaignChangedError, CampaignLockedError, DatabaseError
from cpaas_provider.database.leases import LeasedState
from cpaas_provider.database.registry import CampaignKey, partition_count
from cpaas_provider.sending.journal.model import CAMPAIGN_MARKER, JOURNAL_KEY
from cpaas_provider.sending.journal.resolution import NOTHING_CHANGED
from cpaas_provider.sending.journal.store import CampaignMarker
from cpaas_provider.sending.journal.view import JournalView

_OWNER = "airflow cpaas journal"


class CampaignJournals:
    """The journals of campaigns with an idempotency_key. The database is opened on first use."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._database: Database | None = None
        self._unusable: JournalError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            self._database.close()

    def name_of(self, instance: Instance) -> str | None:
        """Return the name of the campaign partition in which a task instance has stored its journal.

        :raises JournalError: when its record of the campaign cannot be read
        """
        stored = get_state_backend().get(instance.scope, CAMPAIGN_MARKER, session=self._session)
        try:
            return None if stored is None else CampaignMarker.from_json(json.loads(stored)).campaign
        except ValueError as error:
            raise to_journal_error("campaign", instance, error) from None

    def keys_of(self, instance: Instance) -> list[CampaignKey]:
        """Return the campaigns that a task instance's rendered arguments may name; none without an idempotency_key."""
        fields = rendered_fields(instance, self._session)
        key, conn_id = fields.get("idempotency_key"), fields.get("cpaas_conn_id")
        # Whether it is SMS or WhatsApp is in no rendered argument.
        channels = ("email",) if "subject" in fields else ("sms", "whatsapp")
        return [CampaignKey(str(conn_id), channel, str(key), "") for channel in channels] if key else []

    def find(self, instance: Instance) -> Found | None:
        """Return the journal of the campaign that a task instance sends; ``None`` without an idempotency_key.

        :raises JournalError: when the journal is not in this database, or cannot be read
        """
        if (name := self.name_of(instance)) is not None:
            return self.read(instance, name)
        names = [key.name for key in self.keys_of(instance)]
        if not names:
            return None
        # A task instance stores nothing if other task instances have sent the whole campaign.
        try:
            counts = {name: count for name in names if (count := partition_count(self._opened(), name))}
        except DatabaseError as error:
            raise _unreadable(instance, error) from None
        if len(counts) > 1 or max(counts.values(), default=1) > 1:
            which = f"which has {max(counts.values())} partitions" if len(counts) == 1 else "SMS or WhatsApp"
            raise JournalError(
                f"Task instance {instance} has stored nothing for its campaign, {which}. {NOTHING_CHANGED} Name a "
                "task instance that has. `airflow cpaas journal list --state all` shows them."
            )
        return self.read(instance, f"{next(iter(counts), names[0])}/0")

    def read(self, instance: Instance, name: str) -> Found:
        """Return the journal of a campaign partition.

        :raises JournalError: when the journal is not in this database, or cannot be read
        """
        try:
            database = self._opened()
            state = LeasedState(database, name, _OWNER)
            if state.get(JOURNAL_KEY) is None:
                raise self._elsewhere(instance, database)
            get = functools.cache(state.get)
            # Ask before and after: a task may lock the campaign, or release it, while its journal is read.
            locked_by = state.locked_by()
            journal = JournalView.read(get)
            locked_by = locked_by or state.locked_by()
        except DatabaseError as error:
            raise _unreadable(instance, error) from None
        except ValueError as error:
            raise to_journal_error("campaign journal", instance, error) from None
        instance = dataclasses.replace(instance, campaign_taken=locked_by is not None)
        seen = {key: get(key) for key in journal.change_keys}
        return Found(instance, journal, seen, name, database.redacted_url, locked_by)

    def change(self, found: Found, values: Mapping[str, Any]) -> None:
        """Store a resolution.

        :raises JournalError: when a task works on the campaign, or its journal has changed. Nothing was stored
        :raises DatabaseError: when the database failed. The resolution may have been stored
        """
        try:
            LeasedState(self._opened(), found.campaign or "", _OWNER).set_if_unlocked(values, found.seen)
        except CampaignLockedError as error:
            raise JournalError(str(error)) from None
        except CampaignChangedError as error:
            raise JournalError(f"{error} {NOTHING_CHANGED} Check it again.") from None

    def _opened(self) -> Database:
        if self._unusable is not None:
            raise self._unusable
        if self._database is None:
            try:
                self._database = open_database()
            except DatabaseError as error:
                self._unusable = JournalError(
                    "Journals of campaigns with an idempotency_key are stored in the database that [cpaas] database "
                    f"names. {error} {NOTHING_CHANGED}"
                )
                raise self._unusable from None
        return self._database

    def _elsewhere(self, instance: Instance, database: Database) -> JournalError:
        """Return an error for a campaign whose journal is not in this database. It names the other databases."""
        others = recorded_databases(database, self._session).others
        told = f"Task instance {instance} has an idempotency_key, and the journal of its campaign is not in "
        if others:
            return JournalError(
                f"{told}the database {database.redacted_url}, which [cpaas] database names here. The workers use "
                f"{' and '.join(others)}. {NOTHING_CHANGED} Run the command where [cpaas] database names that database."
            )
        return JournalError(
            f"{told}the database {database.redacted_url}. Either the campaign has made no request yet, or the "
            f"database was restored from an older copy. {NOTHING_CHANGED} If the journal is lost for good, `airflow "
            "cpaas journal forget` lets the task start again."
        )


def _unreadable(instance: Instance, error: DatabaseError) -> JournalError:
    return JournalError(f"The campaign of task instance {instance} could not be read. {error} {NOTHING_CHANGED}")
