"""The journals in the provider's database: of campaigns with an idempotency_key, and of tasks.

Those of tasks are there where ``[cpaas] journal`` is ``database``, or was when the task instance sent.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any, Self

import msgspec.structs
from airflow.state import get_state_backend
from sqlalchemy.orm import Session

from cpaas_provider.cli.journal.instances import Found, Instance, JournalError, rendered_fields, to_journal_error
from cpaas_provider.cli.messages.campaign_database import recorded_databases
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import CampaignChangedError, CampaignLockedError, DatabaseError
from cpaas_provider.database.leases import LeasedState
from cpaas_provider.database.registry import CampaignKey, partition_count
from cpaas_provider.database.task_journals import (
    WRITES,
    TaskInstanceName,
    forget_journals,
    list_task_instances,
    newest_journal,
    region_name,
)
from cpaas_provider.sending.journal.model import CAMPAIGN_MARKER, JOURNAL_KEY
from cpaas_provider.sending.journal.resolution import NOTHING_CHANGED
from cpaas_provider.sending.journal.segments import newest_series
from cpaas_provider.sending.journal.store import CampaignMarker, JournalMarker
from cpaas_provider.sending.journal.view import JournalView

_OWNER = "airflow cpaas journal"


class DatabaseJournals:
    """The journals in the provider's database, which is opened on first use."""

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
            return self.read_campaign(instance, name)
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
        return self.read_campaign(instance, f"{next(iter(counts), names[0])}/0")

    def read_campaign(self, instance: Instance, name: str) -> Found:
        """Return the journal of a campaign partition.

        :raises JournalError: when the journal is not in this database, or cannot be read
        """
        try:
            state = LeasedState(self._opened(), name, _OWNER)
            if state.get(JOURNAL_KEY) is None:
                raise self._elsewhere(instance, self._opened())
            # Ask before and after: a task may lock the campaign, or release it, while its journal is read.
            locked_by = state.locked_by()
            found = self._read(instance, name, state)
            locked_by = locked_by or state.locked_by()
        except DatabaseError as error:
            raise _unreadable(instance, error) from None
        instance = msgspec.structs.replace(instance, campaign_taken=locked_by is not None)
        return msgspec.structs.replace(found, instance=instance, is_shared=True, locked_by=locked_by)

    def read_task(self, instance: Instance, marker: JournalMarker | None) -> Found | None:
        """Return the journal of a task instance; ``None`` if the database has none with a request.

        :param marker: what the task state has in its place; ``None`` for the newest journal of the task instance
        :raises JournalError: when it is not in this database, or cannot be read
        """
        try:
            if marker is not None:
                name = marker.name
                self._check_complete(instance, marker)
            else:
                newest = newest_journal(self._opened(), _name_of(instance))
                if newest is None or newest.try_number > instance.try_number:
                    return None
                name = newest.name
            state = LeasedState(self._opened(), name, _OWNER)
            if newest_series(state.get, max(1, instance.try_number) + 1) is None:
                return None
            return self._read(instance, name, state)
        except DatabaseError as error:
            raise _unreadable(instance, error) from None

    def _check_complete(self, instance: Instance, marker: JournalMarker) -> None:
        """Raise if the database lacks writes of a journal, unless the whole journal was pruned.

        :raises JournalError: when it does
        """
        database = self._opened()
        writes = int(LeasedState(database, marker.name, _OWNER).get(WRITES) or 0)
        others = recorded_databases(database, self._session).others if writes == 0 else []
        if writes < marker.writes and (writes or others):
            used = f" The workers use {' and '.join(others)}." if others else ""
            raise JournalError(
                f"The journal of task instance {instance}, or a part of it, is not in the database "
                f"{database.redacted_url}. {NOTHING_CHANGED}{used} Run the command where [cpaas] database names the "
                "database that has it. If the journal is lost for good, `airflow cpaas journal forget` lets the task "
                "start again."
            )

    def task_instances(self, asked: Mapping[str, str | None]) -> list[TaskInstanceName]:
        """Return the task instances that have a journal in the database, newest first.

        :param asked: ``dag_id``, ``run_id`` and ``task_id``, where they are given
        :raises JournalError: when the database cannot be read
        """
        try:
            return list_task_instances(self._opened(), asked)
        except DatabaseError as error:
            raise JournalError(f"The journals of tasks could not be listed. {error} {NOTHING_CHANGED}") from None

    def forget_task(self, instance: Instance) -> None:
        """Delete the journals of a task instance.

        :raises JournalError: when they could not be deleted
        """
        try:
            forget_journals(self._opened(), _name_of(instance))
        except DatabaseError as error:
            raise JournalError(f"{error} {NOTHING_CHANGED}") from None

    def _read(self, instance: Instance, name: str, state: LeasedState) -> Found:
        get = functools.cache(state.get)
        try:
            journal = JournalView.read(get, max(1, instance.try_number))
        except ValueError as error:
            raise to_journal_error("journal", instance, error) from None
        seen = {key: get(key) for key in journal.change_keys}
        return Found(instance, journal, seen, name, database=self._opened().redacted_url)

    def change(self, found: Found, values: Mapping[str, Any]) -> None:
        """Store a resolution.

        :raises JournalError: when a task works on the campaign, or its journal has changed. Nothing was stored
        :raises DatabaseError: when the database failed. The resolution may have been stored
        """
        try:
            LeasedState(self._opened(), found.stored_as or "", _OWNER).set_if_unlocked(values, found.seen)
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
                    "The journals of campaigns with an idempotency_key, and those of tasks with [cpaas] journal = "
                    f"database, are stored in the database that [cpaas] database names. {error} {NOTHING_CHANGED}"
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


def _name_of(instance: Instance) -> TaskInstanceName:
    region = region_name(instance.region_id)
    return TaskInstanceName(instance.dag_id, instance.run_id, instance.task_id, instance.map_index, region)


def _unreadable(instance: Instance, error: DatabaseError) -> JournalError:
    return JournalError(f"The journal of task instance {instance} could not be read. {error} {NOTHING_CHANGED}")
