"""What proves that a row is gone, and that no two keys of a map ever have the same row."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from cpaas_provider.api.client import AsyncCpaasClient
from cpaas_provider.api.errors import CpaasRejectedError
from cpaas_provider.api.models.contacts import ContactRowRecord
from cpaas_provider.contacts.errors import OtherRowError, SharedRowError, UnknownCreationsError
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.resolution import write_resolved
from cpaas_provider.contacts.sync.dispatcher import Dispatcher
from cpaas_provider.database.database import Database
from tests.row_service import RowService, ScriptedFaults
from tests.row_service.answers import Answer, error
from tests.unit.contacts.sync.real_syncs import COLUMNS, Contacts, rows
from tests.unit.database.conftest import database as database
from tests.unit.database.conftest import url as url

NOT_FOUND = [{"field": "row_id", "message": "Row does not exist", "type": "not_found"}]
GATEWAY_ANSWERS = {
    "empty": Answer(404),
    "page": Answer(404, b"<html>Not Found</html>", (("Content-Type", "text/html"),)),
    "error": error(404, "no route matched"),
}


@pytest.fixture
def contacts(database: Database) -> Iterator[Contacts]:
    with RowService(COLUMNS) as service:
        yield Contacts(service, database)


def answering(service: RowService, refused: Callable[[str, str], Answer | None]) -> None:
    """Answer some requests in place of the service."""
    carry_out = service._carry_out

    def answer(method: str, path: str, body: bytes) -> Answer:
        return refused(method, path) or carry_out(method, path, body)

    service._carry_out = answer  # type: ignore[method-assign]  # as a gateway before the service


@pytest.mark.parametrize("answer", GATEWAY_ANSWERS.values(), ids=GATEWAY_ANSWERS)
@pytest.mark.parametrize("way", ["sync", "upsert"])
def test_gateway_that_answers_404_three_times_is_no_proof_about_the_only_row(
    contacts: Contacts, answer: Answer, way: str
) -> None:
    contacts.sync(rows(1))
    requests, is_passed = itertools.count(), False

    def refuse(method: str, path: str) -> Answer | None:
        return answer if path.count("/") == 4 and not is_passed and next(requests) < 3 else None

    answering(contacts.service, refuse)
    if way == "sync":
        ended = contacts.sync(rows(1, "gold"))
        assert (ended.report["created"], ended.report["rejected"], ended.report["complete"]) == (0, 1, False)
        assert any("contacts forget-row" in str(line.reason) for line in ended.lines)
    else:
        with pytest.raises(CpaasRejectedError):
            contacts.upsert("k1", {"c_plan": "gold"})
    assert len(contacts.listed()) == 1
    is_passed = True
    assert contacts.sync(rows(1, "gold")).report["updated"] == 1


def test_only_row_is_gone_by_the_documented_error_of_the_service(contacts: Contacts) -> None:
    contacts.sync(rows(1))
    contacts.delete_elsewhere("k1")
    ended = contacts.sync(rows(1, "gold"))
    assert (ended.report["created"], ended.report["complete"], len(contacts.listed())) == (1, True, 1)


@pytest.mark.parametrize("status", [400, 404])
def test_page_of_a_gateway_proves_nothing_although_another_row_can_be_read(contacts: Contacts, status: int) -> None:
    contacts.sync(rows(3))
    row_id = contacts.row_id("k2")
    page = replace(GATEWAY_ANSWERS["page"], status=status)
    answering(contacts.service, lambda method, path: page if path.endswith(row_id) else None)
    ended = contacts.sync(rows(3, "gold"), max_failure_ratio=1.0)
    assert (ended.report["updated"], ended.report["created"], ended.report["rejected"]) == (2, 0, 1)
    assert sorted(contacts.listed()) == ["k1", "k2", "k3"]


def test_map_records_no_row_id_for_two_keys(contacts: Contacts) -> None:
    contacts.sync(rows(2))
    owner = contacts.entry("k1")
    assert owner is not None
    other = MapEntry(contacts.key_map.hashes.of_key(["k9"]))
    with pytest.raises(SharedRowError, match=r"Nothing was changed\. .*airflow cpaas contacts"):
        write_resolved(contacts.key_map, [(other, replace(other, row_id=owner.row_id))])
    pair = [MapEntry(contacts.key_map.hashes.of_key([key])) for key in ("k8", "k9")]
    with pytest.raises(SharedRowError):
        write_resolved(contacts.key_map, [(entry, replace(entry, row_id="same")) for entry in pair])
    assert contacts.entry("k9") is None


def record_for_another_key(contacts: Contacts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have another task record the row of a creation for its own key, just before the answer is recorded."""
    key_map, calls = contacts.key_map, itertools.count()
    create = type(contacts.client()).create_contact_row

    async def create_row(client, cells):  # type: ignore[no-untyped-def]
        record = await create(client, cells)
        if next(calls) == 0:
            other = MapEntry(key_map.hashes.of_key(["elsewhere"]))
            lease = key_map.row_lease("another task")
            lease.write([Change(other, replace(other, row_id=record.row.id))])
            lease.release()
        return record

    monkeypatch.setattr("cpaas_provider.api.client.AsyncCpaasClient.create_contact_row", create_row)


def test_row_that_another_task_records_meanwhile_is_an_unknown_creation(
    contacts: Contacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    contacts.sync([])
    record_for_another_key(contacts, monkeypatch)
    ended = contacts.sync(rows(1))
    assert isinstance(ended.error, OtherRowError)
    assert (ended.report["created"], ended.report["unknown"], ended.report["complete"]) == (0, 1, False)
    entry, owner = contacts.entry("k1"), contacts.entry("elsewhere")
    assert entry is not None
    assert owner is not None
    assert (entry.state, entry.row_id, owner.state) == (RowState.UNKNOWN, None, RowState.SYNCED)


def test_upsert_answered_with_the_row_of_another_key_names_what_to_do(contacts: Contacts) -> None:
    contacts.sync(rows(2))
    contacts.service.faults = ScriptedFaults([("POST", "other_id")])
    with pytest.raises(UnknownCreationsError, match="airflow cpaas contacts resolve"):
        contacts.upsert("k9", {"c_key": "k9", "c_name": "Person 1", "c_plan": "basic"})
    entry = contacts.entry("k9")
    assert entry is not None
    assert (entry.state, entry.row_id) == (RowState.UNKNOWN, None)


def test_rows_of_two_conflicts_in_one_write_are_all_unknown(
    contacts: Contacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer for k2 has the row of k1. While that is looked up, another task records the row of k3."""
    contacts.sync([])
    create, disprove, do_round = AsyncCpaasClient.create_contact_row, Dispatcher._disprove_shared, Dispatcher._round
    created = dict[str, str]()
    conflicting = {contacts.key_map.hashes.of_key([key]) for key in ("k2", "k3")}

    async def create_row(client: AsyncCpaasClient, cells: Mapping[str, Any]) -> ContactRowRecord:
        record = await create(client, cells)
        created[cells["c_key"]] = record.row.id
        if cells["c_key"] != "k1":
            while (first := contacts.entry("k1")) is None or first.row_id is None:  # noqa: ASYNC110 - in the database
                await asyncio.sleep(0.01)
        if cells["c_key"] == "k2":
            record = record.model_copy(update={"row": record.row.model_copy(update={"id": created["k1"]})})
        return record

    async def disprove_shared(self: Dispatcher, finished: Any) -> Any:
        disproved = await disprove(self, finished)
        if contacts.entry("elsewhere") is None:
            other = MapEntry(contacts.key_map.hashes.of_key(["elsewhere"]))
            write_resolved(contacts.key_map, [(other, replace(other, row_id=created["k3"]))])
        return disproved

    async def record_together(self: Dispatcher) -> bool:
        while len([result for result in self._finished if result.pending.item.key_hash in conflicting]) == 1:  # noqa: ASYNC110 - changed by the method
            await asyncio.sleep(0.01)
        return await do_round(self)

    monkeypatch.setattr(AsyncCpaasClient, "create_contact_row", create_row)
    monkeypatch.setattr(Dispatcher, "_disprove_shared", disprove_shared)
    monkeypatch.setattr(Dispatcher, "_round", record_together)
    assert contacts.sync(rows(3)).report["complete"] is False
    entries = [contacts.entry(key) for key in ("k1", "k2", "k3")]
    assert [entry and (entry.state, entry.row_id) for entry in entries] == [(RowState.UNKNOWN, None)] * 3
