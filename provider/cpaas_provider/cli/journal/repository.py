"""The journals of tasks and campaigns: the commands read and change them, wherever they are stored."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from airflow.configuration import conf
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.models.taskinstance import TaskInstance
from airflow.state import get_state_backend
from airflow.state.metastore import MetastoreBackend
from airflow.utils.session import create_session
from sqlalchemy import and_, func, or_, select, update
from sqlalchemy.orm import Session

from cpaas_provider.cli.journal.campaigns import DatabaseJournals
from cpaas_provider.cli.journal.instances import (
    Found,
    Instance,
    JournalError,
    coordinates,
    instance_columns,
    matches,
    to_instance,
    to_journal_error,
)
from cpaas_provider.database.task_journals import TaskInstanceName
from cpaas_provider.sending.journal.model import CAMPAIGN_MARKER, JOURNAL_KEY
from cpaas_provider.sending.journal.resolution import NOTHING_CHANGED
from cpaas_provider.sending.journal.segments import newest_series, series_key
from cpaas_provider.sending.journal.store import JournalMarker
from cpaas_provider.sending.journal.view import JournalView
from cpaas_provider.tasks.airflow.task_states import index_of

NOT_ON_ITS_WAY = frozenset({None, "up_for_retry", "success", "failed", "skipped", "upstream_failed", "removed"})
"""States of a task instance in which no try runs, or can start and write the journal later."""

_PAGE = 200


def find(asked: Instance, session: Session) -> Instance:
    """Return a task instance with its state.

    :raises JournalError: when it does not exist
    """
    found = session.execute(select(*instance_columns()).where(*matches(TaskInstance, asked)).limit(2)).all()
    if len(found) == 1:
        return to_instance(found[0])
    if found:
        raise JournalError(
            f"Several task instances match {asked}: its task is in nested loops, or mapped in a loop. The commands "
            f"cannot distinguish them. {NOTHING_CHANGED} Look for their requests in the service's own records."
        )
    index = index_of(TaskInstance)
    same_task = select(index).where(*matches(TaskInstance, asked)[:3])
    indexes = session.scalars(same_task.order_by(index).limit(_PAGE)).all()
    if not indexes:
        raise JournalError(
            f"Task instance {asked} does not exist. {NOTHING_CHANGED} `airflow cpaas journal list --state all` "
            "shows the ids."
        )
    if list(indexes) == [-1]:
        raise JournalError(f"Task instance {asked} does not exist. The task is not mapped: omit --map-index.")
    raise JournalError(
        f"Task instance {asked} does not exist. {NOTHING_CHANGED} The task is mapped: give --map-index ({indexes[0]} "
        f"to {indexes[-1]})."
    )


def read(instance: Instance, session: Session) -> Found:
    """Return the journal of a task instance.

    :raises JournalError: when there is none, or it cannot be read
    """
    with DatabaseJournals(session) as stored:
        found = _opened(instance, stored, session)
        # A task instance with its own journal may have been given an idempotency_key later.
        if found is None or not any(found.journal.entries()) or stored.keys_of(instance):
            found = stored.find(instance) or found
    if found is None:
        raise JournalError(
            f"Task instance {instance} has no journal. It made no request, its state was dropped, or its operator does "
            f"not send. {NOTHING_CHANGED}"
        )
    return found


def refuse_on_its_way(instance: Instance) -> None:
    """Raise if a try is running or about to run: it would overwrite the resolution."""
    if instance.state not in NOT_ON_ITS_WAY:
        raise JournalError(
            f"Task instance {instance} is {instance.state}, so its try may still write the journal. {NOTHING_CHANGED} "
            "Wait until it has ended, or mark it failed. Then run the command again."
        )


def change(asked: Instance, expected: Found, values: Mapping[str, Any]) -> Instance:
    """Store a resolution, in one transaction that no try can begin in. Return the task instance.

    :param expected: the journal that was resolved. A journal that has changed since is left alone
    :param values: what the resolution stores, by key
    :raises JournalError: when it could not be stored, or the task instance has gone on meanwhile
    """
    try:
        with create_session(scoped=False) as session:
            _lock(asked, list(expected.seen), session)
            instance = find(asked, session)
            refuse_on_its_way(instance)
            if expected.stored_as is not None:
                with DatabaseJournals(session) as stored:
                    stored.change(expected, values)
                return instance
            if any(_stored(instance, key, session) != value for key, value in expected.seen.items()):
                raise JournalError(
                    f"The journal of {instance} is no longer as it was read. {NOTHING_CHANGED} Check it again."
                )
            for key, value in values.items():
                get_state_backend().set(instance.scope, key, json.dumps(value), expires_at=None, session=session)
    except JournalError:
        raise
    except Exception as error:
        raise JournalError(
            f"The decision may not have been stored ({type(error).__name__}: {error}). Check with `airflow cpaas "
            "journal show`. If it was not stored, run the command again."
        ) from error
    return instance


def everything(asked: dict[str, str | None]) -> Iterator[tuple[Instance, JournalView | JournalError]]:
    """Yield the task instances that have a journal, newest first, each with its journal or the reason it is unreadable.

    :param asked: ``dag_id``, ``run_id`` and ``task_id``, where they are given
    :raises JournalError: when the state store cannot be listed as asked
    """
    with create_session(scoped=False) as session:
        found = _rows(asked, session) if type(get_state_backend()) is MetastoreBackend else _one_run(asked, session)
        with DatabaseJournals(session) as stored:
            yield from _each(_and_dropped(found, stored, asked, session), stored, session)


def _and_dropped(
    instances: Iterable[Instance], stored: DatabaseJournals, asked: Mapping[str, str | None], session: Session
) -> Iterator[Instance]:
    """Yield task instances, and then those whose task state a clear dropped, while the database has their journal."""
    seen = set()
    for instance in instances:
        seen.add(coordinates_of(instance))
        yield instance
    if conf.get("cpaas", "journal", fallback=None) != "database":
        return
    for name in stored.task_instances(asked):
        if coordinates_of(name) not in seen:
            seen.add(coordinates_of(name))
            where = matches(TaskInstance, Instance(*name[:4]))
            # A run that was deleted has no task instances.
            yield from map(to_instance, session.execute(select(*instance_columns()).where(*where)).all())


def coordinates_of(instance: Instance | TaskInstanceName) -> tuple[str, str, str, int]:
    """Return the ids of a task instance, and its map index."""
    return instance.dag_id, instance.run_id, instance.task_id, instance.map_index


def _each(
    instances: Iterable[Instance], stored: DatabaseJournals, session: Session
) -> Iterator[tuple[Instance, JournalView | JournalError]]:
    """Yield the journals of task instances and of the campaigns that they send. Each campaign comes once."""
    seen = set[object]()
    for instance in instances:
        try:
            if opened := _opened(instance, stored, session):
                yield instance, opened.journal
        except JournalError as error:
            yield instance, error
        try:
            name = stored.name_of(instance)
            if name is None or name in seen:
                continue
            seen.add(name)
            found = stored.read_campaign(instance, name)
            yield found.instance, found.journal
        except JournalError as error:
            # An error about the database is the same object for all campaigns.
            if error not in seen:
                seen.add(error)
                yield instance, error


def _rows(asked: dict[str, str | None], session: Session) -> Iterator[Instance]:
    """Read the table itself, page by page: a backend of Airflow returns the state of one given task instance only."""
    row = TaskStateStoreModel
    wanted = [or_(row.key.startswith(JOURNAL_KEY, autoescape=True), row.key == CAMPAIGN_MARKER)]
    wanted += [getattr(row, name) == value for name, value in asked.items() if value]
    # One row of each task instance is enough.
    first = select(func.min(row.id)).where(*wanted).group_by(*coordinates(row))
    same = (column == key for column, key in zip(coordinates(row), coordinates(TaskInstance), strict=True))
    query = (
        select(row.id, *instance_columns())
        .join_from(row, TaskInstance, and_(*same))
        .where(row.id.in_(first))
        .order_by(row.id.desc())
        .limit(_PAGE)
    )
    page = session.execute(query).all()
    while page:
        yield from map(to_instance, page)
        page = session.execute(query.where(row.id < page[-1].id)).all()


def _one_run(asked: dict[str, str | None], session: Session) -> Iterator[Instance]:
    backend = get_state_backend()
    if not (asked["dag_id"] and asked["run_id"]):
        raise JournalError(
            f"The state store backend {type(backend).__name__} ([state_store] backend) cannot list all journals. Give "
            "--dag-id and --run-id."
        )
    query = select(*instance_columns()).where(
        *(getattr(TaskInstance, name) == value for name, value in asked.items() if value)
    )
    found = session.execute(query.order_by(TaskInstance.task_id, index_of(TaskInstance))).all()
    yield from map(to_instance, found)


def marker_keys(instance: Instance, session: Session) -> list[str]:
    """Return the keys under which tries recorded that their journal is in the database; none if it is in the state."""
    keys = map(series_key, range(max(1, instance.try_number) + 1))
    return [key for key in keys if JournalMarker.of(_stored(instance, key, session))]


def _opened(instance: Instance, database: DatabaseJournals, session: Session) -> Found | None:
    """Return the journal of a task instance itself, which is no campaign's; ``None`` without one."""
    stored = _all_stored(instance, session) if type(get_state_backend()) is MetastoreBackend else None

    @functools.cache
    def get(key: str) -> Any:
        text = get_state_backend().get(instance.scope, key, session=session) if stored is None else stored.get(key)
        if text is None:
            return None
        if (value := json.loads(text)) is None:
            raise ValueError("it holds null")
        return value

    try:
        tries = max(1, instance.try_number)
        newest = newest_series(get, tries + 1)
        marker = JournalMarker.of(newest[1]) if newest else None
        if marker is not None or (newest is None and conf.get("cpaas", "journal", fallback=None) == "database"):
            return database.read_task(instance, marker)
        if newest is None:
            return None
        journal = JournalView.read(get, tries)
    except ValueError as error:
        raise to_journal_error("journal", instance, error) from None
    return Found(instance, journal, {key: get(key) for key in journal.change_keys})


def _all_stored(instance: Instance, session: Session) -> dict[str, str]:
    """Return all values of a journal by key, with one query in place of one for each key."""
    row = TaskStateStoreModel
    query = select(row.key, row.value).where(*matches(row, instance), row.key.startswith(JOURNAL_KEY, autoescape=True))
    return {found.key: found.value for found in session.execute(query)}


def _stored(instance: Instance, key: str, session: Session) -> Any:
    stored = get_state_backend().get(instance.scope, key, session=session)
    return None if stored is None else json.loads(stored)


def _lock(asked: Instance, keys: Sequence[str], session: Session) -> None:
    """Lock the task instance and the rows of its journal until the transaction ends.

    Airflow locks the task instance before its state, so this function uses the same order. SQLite has no row locks. It
    locks the database with the first write, so nothing may be read before this call.
    """
    session.execute(select(TaskInstance.id).where(*matches(TaskInstance, asked)).with_for_update())
    row = TaskStateStoreModel
    session.execute(update(row).where(*matches(row, asked), row.key.in_(keys)).values(key=row.key))
