"""Creations whose response is about another row: its id, or its cells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cpaas_provider.contacts.errors import OtherRowError, UnknownCreationsError
from cpaas_provider.contacts.key_map.entries import RowState
from cpaas_provider.database.database import open_database
from tests.row_service import RowService, ScriptedFaults
from tests.unit.contacts.sync.real_syncs import COLUMNS, Contacts, rows

OTHER = pytest.mark.parametrize("fault", ["other_row", "other_id"])
ALONE = {"client": {"max_concurrency": 1}, "max_pending_requests": 1}


@pytest.fixture
def contacts(sqlite_url: str) -> Iterator[Contacts]:
    with RowService(COLUMNS) as service, open_database(sqlite_url) as database:
        yield Contacts(service, database)


@OTHER
def test_row_of_an_earlier_run_is_not_recorded_for_a_new_key(contacts: Contacts, fault: str) -> None:
    contacts.sync(rows(3))
    first = next(iter(contacts.service.table.rows.values()))
    contacts.service.faults = ScriptedFaults([("POST", None), ("POST", fault)])
    ended = contacts.sync(rows(9), max_new=None, **ALONE)
    assert isinstance(ended.error, OtherRowError)
    assert "creation of row 5 of the source" in str(ended.error)
    number = int(str(first.columns["c_key"]).removeprefix("k"))
    assert (f"has the id of row {number}." in str(ended.error)) == (fault == "other_id")
    assert (ended.report["created"], ended.report["unknown"], ended.report["complete"]) == (1, 1, False)
    entry, owner = contacts.entry("k5"), contacts.entry(f"k{number}")
    assert entry is not None
    assert owner is not None
    assert (entry.state, entry.row_id) == (RowState.UNKNOWN, None)
    assert (owner.state, owner.row_id) == (RowState.SYNCED, first.id)
    contacts.sync(rows(9), max_new=None)
    assert sorted(contacts.listed()) == [f"k{number}" for number in range(1, 10)]


def test_two_rows_of_one_run_with_one_id_are_both_unknown(contacts: Contacts) -> None:
    contacts.service.faults = ScriptedFaults([("POST", None), ("POST", "other_id")])
    ended = contacts.sync(rows(4), **ALONE)
    assert isinstance(ended.error, OtherRowError)
    assert "creation of row 2 of the source has the id of row 1." in str(ended.error)
    states = [entry.state for key in ("k1", "k2") if (entry := contacts.entry(key)) is not None]
    assert states == [RowState.UNKNOWN, RowState.UNKNOWN]


@OTHER
def test_upsert_does_not_record_the_row_of_another_key(contacts: Contacts, fault: str) -> None:
    contacts.sync(rows(3))
    contacts.service.faults = ScriptedFaults([("POST", fault)])
    with pytest.raises(UnknownCreationsError):
        contacts.upsert("k9", {"c_key": "k9", "c_name": "Nobody Else", "c_plan": "gold"})
    entry = contacts.entry("k9")
    assert entry is not None
    assert entry.row_id is None


def test_row_of_another_map_is_not_recorded_and_not_deleted_later(contacts: Contacts) -> None:
    contacts.sync(rows(1))
    other = Contacts(contacts.service, contacts.database)
    contacts.service.faults = ScriptedFaults([("POST", "other_id")])
    ended = other.sync(rows(1, first=9), new_map=True)
    assert isinstance(ended.error, OtherRowError)
    assert f"creation of row 1 of the source has the id of a row of the contact map {contacts.map_name!r}." in str(
        ended.error
    )
    entry = other.entry("k9")
    assert entry is not None
    assert (entry.state, entry.row_id) == (RowState.UNKNOWN, None)
    other.sync(rows(1, first=20), new_map=True, max_new=None, rules={"on_missing": "delete"})
    assert "k1" in contacts.listed()


def test_upsert_does_not_record_the_row_of_another_map(contacts: Contacts) -> None:
    contacts.sync(rows(1))
    other = Contacts(contacts.service, contacts.database)
    other.sync(rows(1, first=5), new_map=True)
    contacts.service.faults = ScriptedFaults([("POST", "other_id")])
    with pytest.raises(UnknownCreationsError):
        other.upsert("k9", {"c_key": "k9", "c_name": "Nobody Else", "c_plan": "gold"})
    entry = other.entry("k9")
    assert entry is not None
    assert entry.row_id is None


def test_other_list_may_have_the_same_row_ids(contacts: Contacts) -> None:
    contacts.sync(rows(2))
    row_ids = {contacts.row_id("k1"), contacts.row_id("k2")}
    with RowService(COLUMNS) as service:
        other = Contacts(service, contacts.database)
        assert other.sync(rows(2)).report["complete"] is True
        assert {other.row_id("k1"), other.row_id("k2")} == row_ids
