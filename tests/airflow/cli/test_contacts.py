"""``airflow cpaas contacts status | forget-row | forget-map``, on the provider's database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.hashes import buckets_of
from cpaas_provider.contacts.key_map.key_map import IMPORTING, LEASE, KeyMap
from cpaas_provider.contacts.key_map.maps import find_map, open_map
from cpaas_provider.database.database import Database, open_database
from tests.airflow.harness.command_line import CommandLine

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The database that the commands use."""
    url = f"sqlite:///{tmp_path}/cpaas.db"
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
    with open_database(url) as opened:
        yield opened


@pytest.fixture
def contacts(database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Run ``airflow cpaas contacts ...``."""
    return CommandLine(monkeypatch, capsys, "cpaas", "contacts")


def make_key_map(database: Database, *, name: str = "default", conn_id: str = "cpaas_default") -> KeyMap:
    """Make a map with a row in every state."""
    key_map = open_map(database, conn_id=conn_id, base_url="https://cpaas.example.com", table_id="tbl-1", name=name)
    lease = key_map.lease("dag.sync of run")
    changes = []
    for state in RowState:
        has_row = state not in (RowState.CREATING, RowState.UNKNOWN, RowState.REJECTED)
        row_id = f"{name}-row-{state}" if has_row else None
        entry = MapEntry(
            key_map.hashes.of_key([f"key {state}"]),
            state,
            row_id=row_id,
            fencing_token=lease.fencing_token,
            source_row=17,
            requested=NOW,
        )
        changes.append(Change(MapEntry(entry.key_hash), entry))
    cursor = {"of": "5e77", "value": {"date": "2026-10-31"}, "invalid_rows": 0}
    inner = {"run/0-65536/deleted/0": ["row-gone"], "column_types": {"c1": "TEXT"}, "recipient_columns": ["c1"]}
    lease.write(changes, {"cursor": cursor, "key_columns": ["customer_id", "shop"], **inner})
    lease.release()
    return key_map


class TestStatus:
    def test_json_has_counts_leases_cursor_and_unknown_creations(
        self, contacts: CommandLine, database: Database
    ) -> None:
        key_map = make_key_map(database)
        key_map.lease("dag.sync of run", buckets_of(0, 4))
        key_map.row_lease("dag.upsert of run")
        said = contacts("status", "--output", "json")
        assert said.status == 0, said.err
        (line,) = said.lines
        assert (line["conn_id"], line["map"], line["table_id"]) == ("cpaas_default", "default", "tbl-1")
        # The creation that was requested under a lease that ended is unknown.
        assert line["counts"] == {
            "synced": 1,
            "creating": 0,
            "unknown_creations": 2,
            "rejected": 1,
            "updating": 1,
            "deleting": 1,
        }
        assert [(one["owner"], one["of"]) for one in line["leases"]] == [
            ("dag.sync of run", "25% of the keys"),
            ("dag.upsert of run", "single rows"),
        ]
        assert (line["cursor"], line["key_columns"]) == ("2026-10-31", ["customer_id", "shop"])
        for inner in ("row-gone", "deleted/0", "column_types", "recipient_columns"):
            assert inner not in said.out
        assert line["unknown"] == [{"source_row": 17, "requested": NOW.isoformat(timespec="seconds")}] * 2
        assert key_map.facts.secret not in said.out + said.err

    def test_creation_under_a_lease_that_holds_is_under_way(self, contacts: CommandLine, database: Database) -> None:
        key_map = make_key_map(database)
        lease = key_map.lease("dag.sync of run")
        entry = MapEntry(key_map.hashes.of_key(["new"]), RowState.CREATING, fencing_token=lease.fencing_token)
        lease.write([Change(MapEntry(entry.key_hash), entry)])
        (line,) = contacts("status", "--output", "json").lines
        assert (line["counts"]["creating"], line["counts"]["unknown_creations"]) == (1, 2)

    def test_table_names_what_to_do_about_unknown_creations(self, contacts: CommandLine, database: Database) -> None:
        make_key_map(database)
        said = contacts("status", "--limit", "1")
        assert said.status == 0, said.err
        assert "Unknown creations of contact map 'default' of connection 'cpaas_default':" in said.out
        assert "There are 2 unknown creations. Raise --limit to show more." in said.out
        assert "airflow cpaas contacts resolve" in said.out
        assert re.search("cursor +[|] key_columns *\n.*\n2026-10-31 +[|] customer_id, shop *\n", said.out)
        for inner in ("row-gone", "deleted/0", "column_types", "recipient_columns"):
            assert inner not in said.out

    def test_table_names_an_import_that_was_stopped(self, contacts: CommandLine, database: Database) -> None:
        lease = make_key_map(database).lease("an import")
        lease.write([], {IMPORTING: {"rows": 3}})
        assert "The map holds a part of an import." in contacts("status").out

    @pytest.mark.parametrize(
        ("arguments", "found"),
        [
            ((), ["cpaas_default/crm", "cpaas_default/default", "other/default"]),
            (("--conn-id", "cpaas_default"), ["cpaas_default/crm", "cpaas_default/default"]),
            (("--conn-id", "Cpaas_Default"), ["cpaas_default/crm", "cpaas_default/default"]),
            (("--map", "default"), ["cpaas_default/default", "other/default"]),
            (("--conn-id", "other", "--map", "crm"), []),
        ],
    )
    def test_maps_are_chosen_by_connection_and_name(
        self, contacts: CommandLine, database: Database, arguments: tuple[str, ...], found: list[str]
    ) -> None:
        for conn_id, name in (("cpaas_default", "default"), ("cpaas_default", "crm"), ("other", "default")):
            make_key_map(database, conn_id=conn_id, name=name)
        said = contacts("status", "--output", "json", *arguments)
        assert [f"{line['conn_id']}/{line['map']}" for line in said.lines] == found

    def test_missing_map_is_reported(self, contacts: CommandLine) -> None:
        said = contacts("status")
        assert (said.status, said.out) == (0, "There is no contact map.\n")
        said = contacts("status", "--map", "crm", "--output", "yaml")
        assert (said.status, said.out.strip()) == (1, "[]")
        assert said.err.startswith("There is no such contact map.")

    def test_unusable_database_is_reported(self, contacts: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", "sqlite:///here.db")
        said = contacts("status")
        assert said.status == 1
        assert "absolute path" in said.err


class TestForgetRow:
    def test_confirmed_removal_deletes_one_entry_and_states_the_effect(
        self, contacts: CommandLine, database: Database
    ) -> None:
        key_map = make_key_map(database)
        said = contacts("forget-row", "--key", f"key {RowState.SYNCED}", answer="y\n")
        assert said.status == 0, said.err
        assert (
            "The contact list retains row default-row-0, which no sync updates, clears or deletes any more." in said.out
        )
        assert "If the source has the key, the next sync creates a row for it." in said.out
        assert "Removed the entry of this key from contact map 'default'" in said.out
        counts = key_map.counts()
        assert (counts[RowState.SYNCED], sum(counts.values())) == (0, 5)

    def test_key_of_a_rejected_creation_has_no_row_to_retain(self, contacts: CommandLine, database: Database) -> None:
        make_key_map(database)
        said = contacts("forget-row", "--key", f"key {RowState.REJECTED}", "--yes")
        assert said.status == 0, said.err
        assert "The contact list has no row of this key." in said.out

    @pytest.mark.parametrize("answer", ["", "n\n"])
    def test_unconfirmed_removal_changes_nothing(self, contacts: CommandLine, database: Database, answer: str) -> None:
        key_map = make_key_map(database)
        said = contacts("forget-row", "--key", f"key {RowState.SYNCED}", answer=answer)
        assert said.status == 1
        assert sum(key_map.counts().values()) == 6

    def test_key_is_read_from_standard_input(self, contacts: CommandLine, database: Database) -> None:
        key_map = make_key_map(database)
        said = contacts("forget-row", "--key", "-", "--yes", answer=f"key {RowState.SYNCED}\n")
        assert said.status == 0, said.err
        assert sum(key_map.counts().values()) == 5

    def test_row_with_a_request_in_flight_is_refused(self, contacts: CommandLine, database: Database) -> None:
        key_map = make_key_map(database)
        lease = key_map.lease("dag.sync of run")
        entry = MapEntry(
            key_map.hashes.of_key(["busy"]), RowState.UPDATING, row_id="r", fencing_token=lease.fencing_token
        )
        lease.write([Change(MapEntry(entry.key_hash), entry)])
        said = contacts("forget-row", "--key", "busy", "--yes")
        assert said.status == 1
        assert "A task has a request for this row in flight. Nothing was changed." in said.err

    def test_creation_of_unknown_outcome_is_left_to_resolve(self, contacts: CommandLine, database: Database) -> None:
        make_key_map(database)
        said = contacts("forget-row", "--key", f"key {RowState.UNKNOWN}", "--yes")
        assert said.status == 1
        assert "airflow cpaas contacts resolve" in said.err

    def test_missing_key_is_reported(self, contacts: CommandLine, database: Database) -> None:
        make_key_map(database)
        said = contacts("forget-row", "--key", "nobody", "--yes")
        assert said.status == 1
        assert "The contact map has no entry for this key." in said.err

    def test_key_is_required(self, contacts: CommandLine, database: Database) -> None:
        make_key_map(database)
        assert contacts("forget-row", "--yes").status == 2


class TestForgetMap:
    def test_confirmed_removal_deletes_the_map_and_states_the_effect(
        self, contacts: CommandLine, database: Database
    ) -> None:
        make_key_map(database)
        other = make_key_map(database, name="crm")
        said = contacts("forget-map", answer="y\n")
        assert said.status == 0, said.err
        assert "Remove contact map 'default' of connection 'cpaas_default' with 6 entries?" in said.out
        assert "The next sync creates every row of its source again, so that the list has them twice." in said.out
        assert "Removed contact map 'default'" in said.out
        assert contacts("forget-map").status == 1
        assert sum(other.counts().values()) == 6

    @pytest.mark.parametrize("answer", ["", "n\n", "\n"])
    def test_unconfirmed_removal_changes_nothing(self, contacts: CommandLine, database: Database, answer: str) -> None:
        key_map = make_key_map(database)
        said = contacts("forget-map", answer=answer)
        assert said.status == 1
        assert "othing was changed" in said.err
        assert sum(key_map.counts().values()) == 6

    def test_map_that_is_synced_now_is_refused(self, contacts: CommandLine, database: Database) -> None:
        key_map = make_key_map(database)
        key_map.lease("dag.sync of run", buckets_of(3, 4))
        said = contacts("forget-map", "--yes")
        assert said.status == 1
        assert "dag.sync of run syncs this contact list now" in said.err
        assert sum(find_map(database, conn_id="cpaas_default").counts().values()) == 6

    def test_map_whose_sync_was_killed_is_removed_after_the_lease(
        self, contacts: CommandLine, database: Database
    ) -> None:
        key_map = make_key_map(database)
        KeyMap(database, key_map.facts, clock=lambda: datetime.now(UTC) - LEASE - timedelta(seconds=1)).lease("killed")
        assert contacts("forget-map", "--yes").status == 0

    def test_removal_of_a_missing_map_is_reported(self, contacts: CommandLine) -> None:
        said = contacts("forget-map", "--map", "crm", "--yes")
        assert (said.status, said.err) == (1, "Connection 'cpaas_default' has no contact map 'crm'.")
