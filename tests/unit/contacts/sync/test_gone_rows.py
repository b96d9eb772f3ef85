"""Rows that are gone from the list, in whatever words the service says it, and rows that are rejected and exist."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from cpaas_provider.api.errors import CpaasRejectedError
from cpaas_provider.database.database import open_database
from tests.row_service import READINGS, RowService, ScriptedFaults
from tests.row_service.answers import Answer, error
from tests.tiers import few
from tests.unit.contacts.sync.real_syncs import COLUMNS, Contacts, rows

FORMS = ("404_items", "404_empty", "400_missing", "400_bare", "410_bare", "200_untyped")
PATCH = few(READINGS["patch_gone"], FORMS)
GET = few(READINGS["get_gone"], (*FORMS, "200_null"))
DELETE = few(READINGS["delete_gone"], (*FORMS, "success"))


@pytest.fixture
def contacts(sqlite_url: str) -> Iterator[Contacts]:
    # Whatever the service says, each database stores it in the same way.
    with RowService(COLUMNS) as service, open_database(sqlite_url) as database:
        yield Contacts(service, database)


@pytest.mark.parametrize(
    ("patch_gone", "get_gone"),
    [*((form, "400_bare") for form in PATCH), *(("400_bare", form) for form in GET), ("404_empty", "404_empty")],
)
def test_gone_row_is_created_again_however_the_service_says_it(
    contacts: Contacts, patch_gone: str, get_gone: str
) -> None:
    contacts.sync(rows(6))
    contacts.service.switch(patch_gone=patch_gone, get_gone=get_gone)
    contacts.delete_elsewhere("k2", "k5")
    ended = contacts.sync(rows(6, "gold"))
    assert ended.error is None
    assert (ended.report["updated"], ended.report["created"], ended.report["rejected"]) == (4, 2, 0)
    assert len(contacts.listed()) == 6
    assert all(cells["c_plan"] == "gold" for cells in contacts.listed().values())


@pytest.mark.parametrize("delete_gone", DELETE)
def test_deletion_of_a_gone_row_is_done(contacts: Contacts, delete_gone: str) -> None:
    contacts.sync(rows(4))
    contacts.service.switch(delete_gone=delete_gone, get_gone="400_bare")
    contacts.delete_elsewhere("k2")
    ended = contacts.sync([row for row in rows(4) if row["key"] != "k2"], rules={"on_missing": "delete"})
    assert ended.error is None
    assert (ended.report["deleted"], ended.report["rejected"], ended.report["complete"]) == (1, 0, True)
    assert contacts.entry("k2") is None


@pytest.mark.parametrize("fault", ["500_before", "429", "503_before", "cut_before"])
def test_failure_to_read_a_row_is_no_proof_that_it_is_gone(contacts: Contacts, fault: str) -> None:
    contacts.sync(rows(3))
    contacts.service.switch(patch_gone="400_bare")
    contacts.delete_elsewhere("k2")
    # The first reading is that of the table, before the source is read.
    contacts.service.faults = ScriptedFaults([("GET", None), *[("GET", fault)] * 3])
    ended = contacts.sync(rows(3, "gold"))
    assert (ended.report["not_sent"], ended.report["created"]) == (1, 0)
    assert contacts.entry("k2") is not None


def test_service_that_reads_no_row_makes_no_rejected_row_again(contacts: Contacts) -> None:
    contacts.sync(rows(6))
    contacts.service.refused_values = ["bad"]
    contacts.service.switch(invalid_errors="bare")
    with contacts.service.locked():
        contacts.service._carry_out = _without_reading(contacts.service)  # type: ignore[method-assign]
    ended = contacts.sync([*rows(5), {"key": "k6", "name": "Person 6", "plan": "bad"}])
    assert (ended.report["rejected"], ended.report["created"]) == (1, 0)
    assert len(contacts.listed()) == 6


def _without_reading(service: RowService):  # type: ignore[no-untyped-def]
    carry_out = service._carry_out

    def answer(method: str, path: str, body: bytes):  # type: ignore[no-untyped-def]
        return carry_out(method, path.replace("/row/", "/row/no-such-"), body)

    return answer


def answering(service: RowService, refused: Callable[[str, str], int | None]) -> None:
    """Have the service refuse requests by method and path with a status, and carry out the others."""
    carry_out = service._carry_out

    def answer(method: str, path: str, body: bytes) -> Answer:
        status = refused(method, path)
        return carry_out(method, path, body) if status is None else error(status, "No")

    service._carry_out = answer  # type: ignore[method-assign]  # as another service


def test_deletion_that_is_answered_404_deletes_no_entry_of_a_row_that_exists(contacts: Contacts) -> None:
    contacts.sync(rows(6))
    answering(contacts.service, lambda method, path: 404 if method == "DELETE" else None)
    ended = contacts.sync(rows(3), rules={"on_missing": "delete"})
    assert (ended.report["deleted"], ended.report["rejected"], ended.report["complete"]) == (0, 3, False)
    assert contacts.entry("k6") is not None


@pytest.mark.parametrize("runs", [1, 3])
def test_service_that_finds_no_row_of_the_map_makes_none_again(contacts: Contacts, runs: int) -> None:
    contacts.sync(rows(6))
    answering(contacts.service, lambda method, path: 404 if path.count("/") == 4 else None)
    for number in range(runs):
        ended = contacts.sync(rows(6, f"plan {number}"))
        assert (ended.report["rejected"], ended.report["created"]) == (6, 0)
        assert all("contacts forget-map" in str(line.reason) for line in ended.lines)
    assert len(contacts.listed()) == 6


def test_only_row_of_a_map_is_not_made_again_by_a_service_that_reads_no_row(contacts: Contacts) -> None:
    contacts.sync(rows(1))
    contacts.service.refused_values = ["bad"]
    contacts.service.switch(invalid_errors="bare")
    answering(contacts.service, lambda method, path: 400 if "/row/" in path else None)
    assert contacts.sync(rows(1, "bad")).report["rejected"] == 1
    with pytest.raises(CpaasRejectedError):
        contacts.upsert("k1", {"c_plan": "bad"})
    assert contacts.sync(rows(1, "gold")).report["updated"] == 1
    assert len(contacts.listed()) == 1


def test_twenty_gone_rows_cost_at_most_five_requests_each(contacts: Contacts) -> None:
    contacts.sync(rows(40))
    contacts.service.switch(patch_gone="400_bare", get_gone="400_bare")
    contacts.delete_elsewhere(*[f"k{n}" for n in range(11, 31)])
    ended = contacts.sync(rows(40, "gold"))
    assert (ended.report["created"], ended.report["updated"]) == (20, 20)
    # The table, perhaps twice; 20 accepted updates; for each gone row a rejected update, two readings and a creation.
    # A reading of another row serves all that wait for it. On a slow machine each waits by itself.
    assert ended.requests <= 2 + 20 + 5 * 20


@pytest.mark.parametrize("error_field", READINGS["error_field"])
def test_rejected_rows_whose_error_names_a_column_are_not_read(contacts: Contacts, error_field: str) -> None:
    contacts.sync(rows(20))
    contacts.service.refused_values = ["bad"]
    contacts.service.switch(error_field=error_field)
    ended = contacts.sync(rows(10, "bad") + rows(10, "gold", first=11), max_failure_ratio=1.0)
    assert (ended.report["rejected"], ended.report["updated"]) == (10, 10)
    # The table is read once after a rejection.
    assert ended.requests == 20 + 1


def test_readings_of_rejected_rows_in_the_same_words_are_bounded(contacts: Contacts) -> None:
    contacts.sync(rows(300))
    contacts.service.refused_values = ["bad"]
    contacts.service.switch(invalid_errors="bare")
    ended = contacts.sync(rows(300, "bad"), max_failure_ratio=1.0)
    assert ended.report["rejected"] == 300
    assert ended.requests <= 300 + 125


@pytest.mark.parametrize("patch_gone", PATCH)
def test_upsert_creates_a_gone_row_again(contacts: Contacts, patch_gone: str) -> None:
    contacts.sync(rows(3))
    contacts.service.switch(patch_gone=patch_gone, get_gone="400_missing")
    contacts.delete_elsewhere("k2")
    upserted = contacts.upsert("k2", {"c_key": "k2", "c_name": "Person 2", "c_plan": "gold"})
    assert (upserted.created, len(contacts.listed())) == (True, 3)


def test_upsert_that_is_rejected_keeps_the_row_of_its_key(contacts: Contacts) -> None:
    contacts.sync(rows(3))
    contacts.service.refused_values = ["bad"]
    contacts.service.switch(invalid_errors="bare")
    row_id = contacts.row_id("k2")
    with pytest.raises(CpaasRejectedError):
        contacts.upsert("k2", {"c_plan": "bad"})
    entry = contacts.entry("k2")
    assert entry is not None
    assert entry.row_id == row_id


@pytest.mark.parametrize("get_gone", GET)
def test_verify_counts_a_gone_row_however_the_service_says_it(contacts: Contacts, get_gone: str) -> None:
    contacts.sync(rows(6))
    contacts.service.switch(get_gone=get_gone)
    contacts.delete_elsewhere("k2", "k5")
    report = contacts.verify(mend=True)
    assert (report.gone, report.unreadable, report.equal, report.mended) == (2, 0, 4, 2)
    assert contacts.sync(rows(6)).report["created"] == 2


@pytest.mark.parametrize("fault", ["500_before", "500_in_body_before", "cut_before"])
def test_retried_deletion_that_a_gateway_answers_404_is_not_done(contacts: Contacts, fault: str) -> None:
    contacts.sync(rows(4))
    contacts.service.faults = ScriptedFaults([("DELETE", fault), ("DELETE", "404_before")])
    ended = contacts.sync(rows(3), rules={"on_missing": "delete"}, client={"max_retries": 1})
    assert (ended.report["deleted"], ended.report["rejected"], ended.report["complete"]) == (0, 1, False)
    assert contacts.row_id("k4")
    assert contacts.entry("k4") is not None
    ended = contacts.sync(rows(3), rules={"on_missing": "delete"})
    assert (ended.report["deleted"], ended.report["complete"]) == (1, True)


@pytest.mark.parametrize("fault", ["500_after", "500_in_body_after", "cut_after"])
def test_retried_deletion_of_a_row_that_the_first_attempt_deleted_is_done(contacts: Contacts, fault: str) -> None:
    contacts.sync(rows(4))
    contacts.service.faults = ScriptedFaults([("DELETE", fault)])
    ended = contacts.sync(rows(3), rules={"on_missing": "delete"}, client={"max_retries": 1})
    assert (ended.report["deleted"], ended.report["complete"]) == (1, True)
    assert contacts.entry("k4") is None


@pytest.mark.parametrize("count", few(range(1, 6), (1, 2, 5)))
@pytest.mark.parametrize("options", [{"max_concurrency": 1}, {"max_concurrency": 4}])
def test_gateway_that_answers_some_requests_for_rows_404_makes_no_row_again(
    contacts: Contacts, count: int, options: dict[str, int]
) -> None:
    contacts.sync(rows(8))
    # A row that is gone comes first, so it is known already that rows can be read.
    contacts.delete_elsewhere("k1")
    last, seen = contacts.row_id("k8"), itertools.count()

    def refuse(method: str, path: str) -> int | None:
        nonlocal begun
        begun = begun or path.endswith(last)
        return 404 if begun and path.count("/") == 4 and next(seen) < count else None

    begun = False
    answering(contacts.service, refuse)
    ended = contacts.sync(rows(8, "gold"), client=options, max_failure_ratio=1.0)
    assert ended.report["created"] == 1
    assert sorted(contacts.listed()) == [f"k{number}" for number in range(1, 9)]


@pytest.mark.parametrize(("status", "count"), [(404, 1), (404, 2), (404, 7), (405, 2), (410, 7)])
def test_row_that_a_gateway_rejected_is_sent_by_the_next_run(contacts: Contacts, status: int, count: int) -> None:
    contacts.sync(rows(8))
    seen = itertools.count()
    answering(contacts.service, lambda method, path: status if path.count("/") >= 3 and next(seen) < count else None)
    ended = contacts.sync(rows(9, "gold"), client={"max_concurrency": 1}, max_failure_ratio=1.0)
    assert not ended.report["complete"]
    ended = contacts.sync(rows(9, "gold"))
    assert (ended.report["complete"], len(contacts.listed())) == (True, 9)


def test_creation_that_a_gateway_answers_404_is_sent_by_the_next_run(contacts: Contacts) -> None:
    creations = itertools.count()
    answering(contacts.service, lambda method, path: 404 if method == "POST" and next(creations) == 1 else None)
    ended = contacts.sync(rows(4), max_failure_ratio=1.0)
    assert (ended.report["created"], ended.report["rejected"], ended.report["complete"]) == (3, 1, False)
    assert contacts.sync(rows(4)).report["created"] == 1


def test_accepted_deletions_cost_no_reading(contacts: Contacts) -> None:
    contacts.sync(rows(9))
    ended = contacts.sync(rows(3), rules={"on_missing": "delete"})
    assert (ended.report["deleted"], ended.requests) == (6, 6)


@pytest.mark.parametrize("patch_gone", ["400_missing", "400_bare", "404_items"])
@pytest.mark.parametrize("faults", [["cut_within"], [None, None, None, "cut_within"]])
def test_gone_row_whose_reading_a_gateway_answers_is_created_by_the_next_run(
    contacts: Contacts, patch_gone: str, faults: list[str | None]
) -> None:
    contacts.sync(rows(4))
    contacts.service.switch(patch_gone=patch_gone)
    contacts.delete_elsewhere("k2")
    # The first reading is that of the table, before the source is read.
    contacts.service.faults = ScriptedFaults([("GET", fault) for fault in [None, *faults]])
    ended = contacts.sync(rows(4, "gold"), client={"max_concurrency": 1}, max_failure_ratio=1.0)
    assert (ended.report["created"], ended.report["rejected"], ended.report["complete"]) == (0, 1, False)
    reason = str(next(line.reason for line in ended.lines if line.key == "k2"))
    assert ("forget-row" if patch_gone == "404_items" else "The next run sends it again") in reason
    ended = contacts.sync(rows(4, "gold"))
    assert (ended.report["created"], ended.report["complete"]) == (1, True)
    assert len(contacts.listed()) == 4


@pytest.mark.parametrize("known", [3, 4])
@pytest.mark.parametrize("status", [400, 409, 422])
def test_row_that_the_page_of_a_gateway_rejected_is_sent_by_the_next_run(
    contacts: Contacts, known: int, status: int
) -> None:
    contacts.sync(rows(known))
    requests = itertools.count()
    carry_out = contacts.service._carry_out

    def answer(method: str, path: str, body: bytes) -> Answer:
        is_refused = method in ("POST", "PATCH") and b"Person 4" in body + b"Person 4" * (known == 4)
        if is_refused and not next(requests):
            return Answer(status, b"<html><h1>Bad Request</h1></html>", (("Content-Type", "text/html"),))
        return carry_out(method, path, body)

    contacts.service._carry_out = answer  # type: ignore[method-assign]  # as a gateway before it
    ended = contacts.sync(rows(4, "gold"), client={"max_concurrency": 1}, max_failure_ratio=1.0)
    assert (ended.report["rejected"], ended.report["complete"]) == (1, False)
    assert contacts.sync(rows(4, "gold")).report["complete"]
    assert len(contacts.listed()) == 4
