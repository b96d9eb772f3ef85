"""``airflow cpaas contacts move-map``: a renamed connection, map or key, and a list at another address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.contacts.errors import MapMismatchError
from cpaas_provider.contacts.key_map.entries import Change, MapEntry
from cpaas_provider.contacts.key_map.maps import all_maps, find_map, open_map
from cpaas_provider.contacts.key_map.overview import KEY_COLUMNS, released
from tests.airflow.cli.test_contact_lists import Service
from tests.airflow.cli.test_contact_lists import contacts as contacts  # as a fixture
from tests.airflow.cli.test_contact_lists import service as service  # as a fixture
from tests.airflow.harness.command_line import CommandLine
from tests.sandbox import Sandbox, connection_json
from tests.unit.contacts.listed import NAME


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Sandbox]:
    """Another service, without rows."""
    with Sandbox(log=tmp_path / "elsewhere.log") as sandbox:
        yield sandbox


def known_rows(service: Service, count: int = 3) -> None:
    """Create rows that the map knows with their cells."""
    hashes = service.map().hashes
    for number in range(count):
        cells = {NAME: f"Ada {number}"}
        row_id = service.created(**cells)
        service.write(f"c-{number}", row_id=row_id, cell_hashes=hashes.of_cells(cells).to_bytes())


def names(service: Service) -> list[tuple[str, str]]:
    return [(key_map.facts.conn_id, key_map.facts.name) for key_map in all_maps(service.database)]


def test_renamed_connection_keeps_its_rows(
    contacts: CommandLine, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_rows(service)
    before = service.map().facts
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_NEW", connection_json(service.sandbox.connection))
    said = contacts("move-map", "--to-conn-id", "cpaas_new", "--to-map", "crm")
    assert said.status == 0, said.err
    assert "with 3 entries. It is map 'crm' of connection 'cpaas_new' now." in said.out
    assert names(service) == [("cpaas_new", "crm")]
    after = find_map(service.database, conn_id="cpaas_new", name="crm")
    assert (after.facts.map_id, after.facts.secret) == (before.map_id, before.secret)
    assert sum(after.counts().values()) == 3
    assert contacts("move-map").status == 1


def test_list_without_the_rows_is_refused(
    contacts: CommandLine, service: Service, elsewhere: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_rows(service)
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_DEFAULT", connection_json(elsewhere.connection))
    said = contacts("move-map")
    assert said.status == 1
    assert "3 rows read, 0 are not there, 0 have other cells, 3 cannot be read" in said.err
    assert "Nothing was changed." in said.err
    facts = find_map(service.database, conn_id="cpaas_default").facts
    assert facts.base_url == service.sandbox.url


def test_list_with_half_of_the_rows_is_refused(
    contacts: CommandLine, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_rows(service, 4)
    for number in range(2):
        entry = service.entry(f"c-{number}")
        assert entry is not None
        service.client.delete_contact_row(str(entry.row_id))
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_NEW", connection_json(service.sandbox.connection))
    said = contacts("move-map", "--to-conn-id", "cpaas_new")
    assert said.status == 1
    assert "4 rows read, 2 are not there" in said.err
    assert names(service) == [("cpaas_default", "default")]


@pytest.mark.parametrize("column", [None, "a column of another table"])
def test_row_ids_alone_do_not_show_that_it_is_the_list(
    contacts: CommandLine, service: Service, monkeypatch: pytest.MonkeyPatch, column: str | None
) -> None:
    cells = service.map().hashes.of_cells({} if column is None else {column: "Ada"}).to_bytes()
    for number in range(3):
        service.write(f"c-{number}", row_id=service.created(**{NAME: "Somebody else"}), cell_hashes=cells)
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_NEW", connection_json(service.sandbox.connection))
    ended = contacts("move-map", "--to-conn-id", "cpaas_new")
    assert (ended.status, "Nothing was changed." in ended.err) == (1, True), ended.err
    assert ("knows no cell" if column is None else "3 have no cell to compare") in ended.err
    assert names(service) == [("cpaas_default", "default")]


def test_rows_without_known_cells_do_not_hide_that_the_others_are_there(
    contacts: CommandLine, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_rows(service, 1)
    for number in range(30):
        service.write(f"adopted-{number}", row_id=f"adopted-{number}")
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_NEW", connection_json(service.sandbox.connection))
    ended = contacts("move-map", "--to-conn-id", "cpaas_new")
    assert ended.status == 0, ended.err


def test_list_at_another_address_is_followed(
    contacts: CommandLine, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_rows(service)
    moved = service.sandbox.url.replace("127.0.0.1", "localhost")
    connection: dict[str, Any] = {**service.sandbox.connection, "host": moved}
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_DEFAULT", connection_json(connection))
    with pytest.raises(MapMismatchError, match="move-map --conn-id cpaas_default --map default"):
        open_map(service.database, conn_id="cpaas_default", base_url=moved, table_id=service.table_id)
    said = contacts("move-map")
    assert said.status == 0, said.err
    open_map(service.database, conn_id="cpaas_default", base_url=moved, table_id=service.table_id)


def test_key_columns_are_renamed(contacts: CommandLine, service: Service) -> None:
    lease = service.map().lease("a sync")
    lease.write([], {KEY_COLUMNS: ["id", "country"]})
    said = contacts("move-map", "--key", "customer_id", "--key", "land")
    assert said.status == 1, "a task uses the map"
    lease.release()
    said = contacts("move-map", "--key", "customer_id")
    assert "The key has 2 columns: id and country. Nothing was changed." in said.err
    said = contacts("move-map", "--key", "customer_id", "--key", "land")
    assert said.status == 0, said.err
    assert service.map().value(KEY_COLUMNS) == ["customer_id", "land"]


@pytest.mark.parametrize("name", ["", " ", "x" * 101])
def test_name_that_no_sync_can_use_is_refused(contacts: CommandLine, service: Service, name: str) -> None:
    known_rows(service)
    said = contacts("move-map", "--to-map", name)
    assert (said.status, "must be text of 1 to 100 characters" in said.err) == (1, True), said.err
    assert names(service) == [("cpaas_default", "default")]


def test_key_column_without_a_name_is_refused(contacts: CommandLine, service: Service) -> None:
    service.key_columns("id")
    said = contacts("move-map", "--key", " ")
    assert (said.status, "A key column has no name. Nothing was changed." in said.err) == (1, True), said.err
    assert service.map().value(KEY_COLUMNS) == ["id"]


def test_map_with_rows_is_never_replaced(contacts: CommandLine, service: Service) -> None:
    known_rows(service)
    other: dict[str, Any] = {"conn_id": "cpaas_default", "base_url": service.sandbox.url, "table_id": service.table_id}
    open_map(service.database, **other, name="empty")
    assert contacts("move-map", "--to-map", "empty").status == 0
    assert names(service) == [("cpaas_default", "empty")]
    known_rows(service)
    said = contacts("move-map", "--to-map", "empty")
    assert "with 3 entries. Nothing was changed." in said.err
    assert len(names(service)) == 2


def test_map_that_an_upsert_uses_is_not_moved(contacts: CommandLine, service: Service) -> None:
    known_rows(service)
    lease = service.map().row_lease("an upsert")
    said = contacts("move-map", "--to-map", "crm")
    assert "an upsert uses this contact map now. Nothing was changed." in said.err
    lease.release()
    assert contacts("move-map", "--to-map", "crm").status == 0


def test_map_whose_rows_another_map_of_the_new_connection_has_is_refused(
    contacts: CommandLine, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_rows(service)
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_NEW", connection_json(service.sandbox.connection))
    other = open_map(
        service.database, conn_id="cpaas_new", base_url=service.sandbox.url, table_id=service.table_id, name="crm"
    )
    entry = service.entry("c-1")
    assert entry is not None
    with released(other.row_lease("a sync")) as lease:
        lease.write([Change(MapEntry(b"k" * 16), MapEntry(b"k" * 16, row_id=entry.row_id))])
    said = contacts("move-map", "--to-conn-id", "cpaas_new")
    assert said.status == 1
    assert "The contact map 'crm' of connection 'cpaas_new' has rows of this map already. Nothing was" in said.err
    assert names(service) == [("cpaas_default", "default"), ("cpaas_new", "crm")]
