"""``row_updates``: a service that clears the cells that an update does not send, and one that keeps them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from cpaas_provider.api.errors import CpaasInvalidRequestError
from cpaas_provider.contacts.errors import RowUpdatesError, UncheckedUpdateError
from cpaas_provider.contacts.mapping.rules import ColumnRule
from cpaas_provider.database.database import open_database
from tests.row_service import READINGS, RowService
from tests.row_service.answers import Answer, error
from tests.unit.contacts.sync.real_syncs import COLUMNS, RULES, Contacts, rows

WHOLE = {"row_updates": "whole"}


@pytest.fixture
def contacts(sqlite_url: str) -> Iterator[Contacts]:
    # Whatever the service says, each database stores it in the same way.
    with RowService(COLUMNS) as service, open_database(sqlite_url) as database:
        yield Contacts(service, database)


def expected(count: int, plan: str | None) -> dict[str, dict[str, str | None]]:
    return {row["key"]: {"c_key": row["key"], "c_name": row["name"], "c_plan": plan} for row in rows(count)}


@pytest.mark.parametrize("patch_answer", READINGS["patch_answer"])
@pytest.mark.parametrize("empty_form", READINGS["empty_form"])
def test_cleared_cells_stop_the_sync_at_the_first_row_and_name_the_option(
    contacts: Contacts, patch_answer: str, empty_form: str
) -> None:
    contacts.sync(rows(20))
    contacts.service.switch(patch_omitted="clear", patch_answer=patch_answer, empty_form=empty_form)
    ended = contacts.sync(rows(20, "gold"))
    assert isinstance(ended.error, RowUpdatesError)
    assert "row_updates" in str(ended.error)
    assert ended.error.permanent
    damaged = [cells for cells in contacts.listed().values() if not cells.get("c_key")]
    assert len(damaged) == 1
    assert not ended.report["complete"]
    assert list(ended.outcomes().values()) == ["not_sent"]
    repaired = contacts.sync(rows(20, "gold"), rules=WHOLE)
    assert repaired.error is None
    assert contacts.listed() == expected(20, "gold")
    assert contacts.sync(rows(20, "gold"), rules=WHOLE).report["requests"] == 0


@pytest.mark.parametrize("patch_answer", READINGS["patch_answer"])
@pytest.mark.parametrize("empty_form", READINGS["empty_form"])
def test_service_that_keeps_cells_raises_no_alarm_and_costs_few_readings(
    contacts: Contacts, patch_answer: str, empty_form: str
) -> None:
    contacts.service.switch(patch_answer=patch_answer, empty_form=empty_form)
    contacts.sync(rows(20))
    ended = contacts.sync(rows(20, "gold"))
    assert ended.error is None
    assert contacts.listed() == expected(20, "gold")
    assert ended.requests <= 20 + 2
    ended = contacts.sync(rows(20, None))
    assert ended.error is None
    assert contacts.listed() == expected(20, None)


def test_cells_that_another_client_emptied_raise_no_alarm_and_are_restored(contacts: Contacts) -> None:
    contacts.sync(rows(4))
    contacts.change_elsewhere("k1", {"c_name": None, "c_key": None})
    contacts.change_elsewhere("k2", {"c_name": None})
    ended = contacts.sync(rows(4, "gold"))
    assert ended.error is None
    assert ended.report["updated"] == 4
    assert contacts.listed()["k1"] == expected(4, "gold")["k1"]


def test_single_cell_that_another_client_emptied_is_restored(contacts: Contacts) -> None:
    contacts.sync(rows(4))
    contacts.change_elsewhere("k2", {"c_name": None})
    ended = contacts.sync(rows(4, "gold"))
    assert ended.report["complete"]
    assert contacts.listed() == expected(4, "gold")


def test_service_that_clears_some_of_the_other_cells_is_noticed(contacts: Contacts) -> None:
    contacts.sync(rows(20))
    carry_out = contacts.service._carry_out

    def clear_name(method: str, path: str, body: bytes) -> Answer:
        if method == "PATCH":
            contacts.service.table.rows[path.rpartition("/")[2]].columns["c_name"] = None
        return carry_out(method, path, body)

    contacts.service._carry_out = clear_name  # type: ignore[method-assign]  # as another service
    ended = contacts.sync(rows(20, "gold"))
    assert isinstance(ended.error, RowUpdatesError)
    assert [cells["c_name"] for cells in contacts.listed().values()].count(None) == 1


@pytest.mark.parametrize("columns", [["Key", "Name"], ["Key", "Name", "Plan"]])
def test_cleared_cells_that_the_map_does_not_know_stop_the_sync_at_the_first_row(
    contacts: Contacts, columns: list[str]
) -> None:
    contacts.sync(rows(10))
    for row in rows(10):
        contacts.change_elsewhere(row["key"], {"c_plan": "by hand"})
    contacts.service.switch(patch_omitted="clear")
    mapping = {name: RULES[name] for name in columns}
    if "Plan" in mapping:
        mapping["Plan"] = ColumnRule(source="plan", keep_when_blank=True)
    ended = contacts.sync(rows(10, None), columns=mapping, resync=True)
    assert isinstance(ended.error, RowUpdatesError)
    assert [cells.get("c_plan") for cells in contacts.listed().values()].count("by hand") == 9


def test_service_that_keeps_unknown_cells_costs_one_reading(contacts: Contacts) -> None:
    contacts.sync(rows(10))
    mapping = {name: RULES[name] for name in ("Key", "Name")}
    ended = contacts.sync(rows(10), columns=mapping, resync=True)
    assert (ended.report["updated"], ended.requests) == (10, 11)


def test_row_that_cannot_be_read_after_a_doubtful_update_stops_the_sync_there(contacts: Contacts) -> None:
    contacts.sync(rows(20))
    contacts.service.switch(patch_omitted="clear")
    carry_out = contacts.service._carry_out

    def break_reading(method: str, path: str, body: bytes) -> Answer:
        return error(500, "Internal error") if "/row/" in path else carry_out(method, path, body)

    contacts.service._carry_out = break_reading  # type: ignore[method-assign]  # as another service
    ended = contacts.sync(rows(20, "gold"))
    assert isinstance(ended.error, UncheckedUpdateError)
    assert not ended.error.permanent
    assert len([cells for cells in contacts.listed().values() if not cells.get("c_name")]) == 1
    contacts.service._carry_out = carry_out  # type: ignore[method-assign]  # as before
    contacts.service.switch(patch_omitted="keep")
    assert contacts.sync(rows(20, "gold")).error is None
    assert contacts.listed() == expected(20, "gold")


def test_rows_gone_from_the_source_reveal_a_service_that_clears(contacts: Contacts) -> None:
    contacts.sync(rows(4))
    contacts.service.switch(patch_omitted="clear")
    options = {"rules": {"on_missing": "set"}, "missing_cells": {"Plan": "gone"}}
    ended = contacts.sync(rows(2), **options)
    assert isinstance(ended.error, RowUpdatesError)
    assert len([cells for cells in contacts.listed().values() if not cells.get("c_key")]) == 1


def test_upsert_notices_cleared_cells_and_the_next_sync_repairs_them(contacts: Contacts) -> None:
    contacts.sync(rows(3))
    contacts.service.switch(patch_omitted="clear")
    with pytest.raises(RowUpdatesError, match="row_updates"):
        contacts.upsert("k2", {"c_plan": "gold"})
    ended = contacts.sync(rows(3), rules=WHOLE)
    assert ended.report["updated"] == 1
    assert contacts.listed() == expected(3, "basic")


def test_upsert_with_whole_rows_sends_the_cells_of_the_author(contacts: Contacts) -> None:
    contacts.sync(rows(3))
    contacts.service.switch(patch_omitted="clear")
    cells = {"c_key": "k2", "c_name": "Ada", "c_plan": "gold"}
    assert contacts.upsert("k2", cells, row_updates="whole").changed
    assert contacts.listed()["k2"] == cells
    # The cells that were not sent may be cleared, so the sync sends them again.
    contacts.upsert("k3", {"c_key": "k3", "c_plan": "gold"}, row_updates="whole")
    contacts.sync(rows(3), rules=WHOLE)
    assert contacts.listed() == expected(3, "basic")


def test_mended_rows_converge_with_whole_rows(contacts: Contacts) -> None:
    contacts.sync(rows(4))
    contacts.service.switch(patch_omitted="clear")
    contacts.change_elsewhere("k1", {"c_name": "Changed"})
    assert contacts.verify(mend=True).mended == 1
    contacts.sync(rows(4), rules=WHOLE)
    assert contacts.listed() == expected(4, "basic")
    assert contacts.verify().equal == 4


def test_killed_whole_update_leaves_all_cells_unknown(contacts: Contacts) -> None:
    contacts.sync(rows(2))
    contacts.service.broken_values = ["gold"]
    ended = contacts.sync(rows(1, "gold") + rows(1, first=2), rules=WHOLE)
    assert ended.report["not_sent"] == 1
    entry = contacts.entry("k1")
    assert entry is not None
    assert not entry.cell_hashes


def test_mapping_that_leaves_cells_out_is_refused_with_whole_rows(contacts: Contacts) -> None:
    kept = {**RULES, "Plan": ColumnRule(source="plan", keep_when_blank=True)}
    ended = contacts.sync(rows(2), columns=kept, rules=WHOLE)
    assert isinstance(ended.error, CpaasInvalidRequestError)
    assert "keep_when_blank leaves out Plan" in str(ended.error)
    assert contacts.listed() == {}


def test_rows_without_their_invalid_cells_are_refused_with_whole_rows(contacts: Contacts) -> None:
    ended = contacts.sync(rows(2), rules={"on_invalid_cell": "skip_cell", **WHOLE})
    assert isinstance(ended.error, CpaasInvalidRequestError)
    assert "on_invalid_cell='skip_row'" in str(ended.error)
    assert contacts.listed() == {}


def test_cells_of_missing_rows_are_refused_with_whole_rows_unless_they_are_all(contacts: Contacts) -> None:
    contacts.sync(rows(2))
    rules = {"on_missing": "set", **WHOLE}
    ended = contacts.sync(rows(1), rules=rules, missing_cells={"Plan": "gone"})
    assert isinstance(ended.error, CpaasInvalidRequestError)
    assert "on_missing writes no cell of Key, Name" in str(ended.error)
    every = {"Key": "k2", "Name": None, "Plan": "gone"}
    ended = contacts.sync(rows(1), rules=rules, missing_cells=every)
    assert ended.error is None
    assert contacts.listed()["k2"] == {"c_key": "k2", "c_name": None, "c_plan": "gone"}


def clear_from(service: RowService, number: int) -> None:
    """Have the service clear omitted cells from its PATCH of that number on."""
    carry_out, updates = service._carry_out, itertools.count(1)

    def answer(method: str, path: str, body: bytes) -> Answer:
        if method == "PATCH" and next(updates) == number:
            service.switch(patch_omitted="clear")
        return carry_out(method, path, body)

    service._carry_out = answer  # type: ignore[method-assign]  # as another service


@pytest.mark.parametrize("empty_form", READINGS["empty_form"])
def test_service_that_begins_to_clear_known_cells_amid_a_run_is_noticed_at_once(
    contacts: Contacts, empty_form: str
) -> None:
    contacts.sync(rows(20))
    contacts.service.switch(empty_form=empty_form)
    clear_from(contacts.service, 11)
    ended = contacts.sync(rows(20, "gold"), client={"max_concurrency": 1})
    assert isinstance(ended.error, RowUpdatesError)
    assert len([cells for cells in contacts.listed().values() if not cells.get("c_name")]) == 1


def test_service_that_begins_to_clear_cells_that_the_map_does_not_know_is_noticed_at_the_next_row(
    contacts: Contacts,
) -> None:
    contacts.sync(rows(20))
    clear_from(contacts.service, 11)
    mapping = {name: RULES[name] for name in ("Key", "Name")}
    ended = contacts.sync(rows(20), columns=mapping, resync=True, client={"max_concurrency": 1})
    assert isinstance(ended.error, RowUpdatesError)
    assert [cells.get("c_plan") for cells in contacts.listed().values()].count("basic") == 18


def test_rows_without_unmapped_cells_among_others_raise_no_alarm(contacts: Contacts) -> None:
    contacts.sync([*rows(10), *rows(10, None, first=11), *rows(10, first=21)])
    mapping = {name: RULES[name] for name in ("Key", "Name")}
    ended = contacts.sync(rows(30), columns=mapping, resync=True, client={"max_concurrency": 1})
    assert (ended.error, ended.report["updated"]) == (None, 30)
    assert ended.requests <= 30 + 1 + 11
