"""A service that accepts a row and does not store some of its cells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cpaas_provider.contacts.errors import NotSyncedError, TooManyFailuresError, UnstoredCellsError
from cpaas_provider.contacts.key_map.rejections import pages
from cpaas_provider.database.database import Database
from tests.row_service import READINGS, RowService
from tests.row_service.answers import Answer
from tests.unit.contacts.sync.real_syncs import COLUMNS, Contacts, rows


@pytest.fixture
def contacts(database: Database) -> Iterator[Contacts]:
    """Yield contacts at a service that stores nothing in place of the value ``gold``."""
    with RowService(COLUMNS) as service:
        carry_out = service._carry_out

        def without_gold(method: str, path: str, body: bytes) -> Answer:
            return carry_out(method, path, body.replace(b'"gold"', b"null"))

        service._carry_out = without_gold  # type: ignore[method-assign]  # as another service
        yield Contacts(service, database)


@pytest.mark.parametrize("empty_form", READINGS["empty_form"])
def test_new_row_without_a_cell_is_named_and_not_created_again(contacts: Contacts, empty_form: str) -> None:
    contacts.service.switch(empty_form=empty_form)
    source = [*rows(5), *rows(1, "gold", first=6)]
    ended = contacts.sync(source)
    assert isinstance(ended.error, TooManyFailuresError)
    assert (ended.report["created"], ended.report["incomplete_because"]) == (5, {"rejected": 1})
    (line,) = [line for line in ended.lines if line.key == "k6"]
    assert line.reason == "the service accepted the row, and stored no value in Plan"
    again = contacts.sync(source)
    assert (again.report["requests"], again.report["incomplete_because"]) == (0, {"rejected_before": 1})
    (stored,) = [rejection for page in pages(contacts.database, contacts.key_map.facts.map_id) for rejection in page]
    assert stored.columns == ("Plan",)
    corrected = contacts.sync(rows(6))
    assert (corrected.report["updated"], corrected.report["complete"]) == (1, True)
    assert len(contacts.listed()) == 6


@pytest.mark.parametrize("row_updates", ["partial", "whole"])
@pytest.mark.parametrize("patch_answer", READINGS["patch_answer"])
def test_update_without_a_cell_is_named(contacts: Contacts, row_updates: str, patch_answer: str) -> None:
    contacts.service.switch(patch_answer=patch_answer)
    rules = {"row_updates": row_updates}
    contacts.sync(rows(5), rules=rules)
    ended = contacts.sync(rows(5, "gold"), rules=rules, max_failure_ratio=1.0)
    assert ended.error is None
    assert (ended.report["updated"], ended.report["incomplete_because"]) == (0, {"rejected": 5})
    assert contacts.sync(rows(5, "silver"), rules=rules).report["complete"]


def test_answer_that_shows_the_row_as_it_was_before_rejects_nothing(contacts: Contacts) -> None:
    contacts.sync(rows(3, None))
    carry_out = contacts.service._carry_out

    def answer_before(method: str, path: str, body: bytes) -> Answer:
        before = carry_out("GET", path.replace("/rows/", "/row/"), b"") if method == "PATCH" else None
        answer = carry_out(method, path, body)
        return before or answer

    contacts.service._carry_out = answer_before  # type: ignore[method-assign]  # as another service
    ended = contacts.sync(rows(3, "silver"))
    assert (ended.report["updated"], ended.report["complete"]) == (3, True)


@pytest.mark.parametrize("status", [500, 404])
def test_answer_that_shows_the_row_as_it_was_before_rejects_nothing_for_good_if_the_row_cannot_be_read(
    contacts: Contacts, status: int
) -> None:
    contacts.sync(rows(3, None))
    carry_out = contacts.service._carry_out

    def answer_before(method: str, path: str, body: bytes) -> Answer:
        if method == "GET" and "/row/" in path:
            return Answer(status, b"<html>Gateway</html>")
        before = carry_out("GET", path.replace("/rows/", "/row/"), b"") if method == "PATCH" else None
        answer = carry_out(method, path, body)
        return before or answer

    contacts.service._carry_out = answer_before  # type: ignore[method-assign]  # as another service
    with pytest.raises(NotSyncedError, match="A retry of the task sends these cells again"):
        contacts.upsert("k1", {"c_plan": "silver"})
    ended = contacts.sync(rows(3, "silver"), max_failure_ratio=1.0)
    assert ended.report["incomplete_because"] == {"rejected": 2}
    contacts.service._carry_out = carry_out  # type: ignore[method-assign]
    assert contacts.sync(rows(3, "silver")).report["complete"]


def test_upsert_without_a_cell_fails_and_the_next_sync_names_the_row(contacts: Contacts) -> None:
    contacts.sync(rows(2))
    with pytest.raises(UnstoredCellsError, match="stored no value in Plan"):
        contacts.upsert("k3", {"c_key": "k3", "c_name": "Person 3", "c_plan": "gold"})
    ended = contacts.sync([*rows(2), *rows(1, "gold", first=3)])
    assert ended.report["incomplete_because"] == {"rejected": 1}
    assert len(contacts.listed()) == 3
