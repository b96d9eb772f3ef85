from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Connection

from cpaas_provider.contacts.key_map.entries import Change, MapEntry, RowState
from cpaas_provider.contacts.key_map.maps import open_map
from cpaas_provider.contacts.key_map.rejections import new_rejection
from cpaas_provider.database.activity.progress import (
    CONTACT_SYNC,
    FINISHED,
    RUNNING,
    WAITING,
    RecordedTask,
    record_progress,
)
from cpaas_provider.database.activity.single_requests import (
    AirtimePurchaseRow,
    record_passcode,
    record_passcode_outcome,
    record_purchase,
)
from cpaas_provider.database.database import Database
from tests.unit.delivery.report_builders import ADA, OBI, report, save_reports, token_for

NOW = datetime.now(UTC)


def figures(page: str) -> dict[str, str]:
    """Return the figures of the first row of the last table."""
    row = page.rpartition("<tbody>")[2].partition("</tr>")[0]
    found = re.findall(r'<td[^>]* data-name="([^"]+)">(.*?)</td>', row, re.DOTALL)
    return {name: " ".join(re.sub("<[^>]+>", " ", text).split()) for name, text in found}


def passcode(
    database: Database,
    otp_id: str,
    outcome: str | None = None,
    *,
    ends: timedelta,
    dag_id: str = "d",
    conn_id: str = "shop",
    earlier: bool = False,
) -> None:
    def work(connection: Connection) -> None:
        record_passcode(
            connection, conn_id, otp_id, dag_id=dag_id, requested_at=NOW, expires_at=NOW + ends, earlier=earlier
        )
        if outcome:
            record_passcode_outcome(connection, conn_id, otp_id, outcome)

    database.write(work)


def purchase(
    database: Database,
    reference: str,
    *,
    network: str = "MTN",
    dag_id: str = "d",
    amount: float | None = 100,
    conn_id: str = "shop",
    earlier: bool = False,
) -> None:
    row = AirtimePurchaseRow(conn_id, reference, dag_id, "run", "buy", -1, network, amount, 97.5, "pending", NOW)
    database.write(lambda connection: record_purchase(connection, row, earlier=earlier))


class TestContactSyncs:
    def test_contact_sync_is_shown_with_its_rows(self, database: Database, reader: TestClient) -> None:
        task = RecordedTask("sync-1", CONTACT_SYNC, "sync_contacts", "shop", "d", "run", "sync", -1, 1, {"map": "crm"})
        counts = {"rows": 1200, "created": 7, "updated": 3, "rejected": 1, "rows_per_second": 9.5}
        database.write(lambda connection: record_progress(connection, task, FINISHED, counts))
        page = reader.get("/contact-syncs").text
        shown = figures(page)
        assert (shown["Rows"], shown["Created"], shown["Updated"]) == ("1,200", "7", "3")
        assert "ended" in shown["State"]
        assert "map crm" in page
        assert "sync-1" not in reader.get("/campaigns").text

    @pytest.mark.parametrize(
        ("causes", "shown"),
        [
            ({"rejected": 1200, "missing_skipped": 5}, "1,200 rejected 5 missing rows skipped"),
            ({"invalid_rows": 1, "missing_skipped": 1}, "1 invalid row 1 missing row skipped"),
            ({}, "nothing"),
        ],
    )
    def test_page_names_what_differs_from_the_source(
        self, database: Database, reader: TestClient, causes: dict[str, int], shown: str
    ) -> None:
        task = RecordedTask("sync-1", CONTACT_SYNC, "sync_contacts", "shop", "d", "run", "sync", -1)
        counts = {"complete": not causes, "incomplete_because": causes}
        database.write(lambda connection: record_progress(connection, task, FINISHED, counts))
        assert figures(reader.get("/contact-syncs").text)["Differs from the source by"] == shown

    @pytest.mark.parametrize(("state", "is_loaded_again"), [(RUNNING, True), (WAITING, True), (FINISHED, False)])
    def test_list_is_reloaded_while_a_sync_is_running(
        self, database: Database, reader: TestClient, state: str, is_loaded_again: bool
    ) -> None:
        task = RecordedTask("sync-1", CONTACT_SYNC, "sync_contacts", "shop", "d", "run", "sync", -1)
        database.write(lambda connection: record_progress(connection, task, state, {}))
        assert ("data-refresh" in reader.get("/contact-syncs").text) == is_loaded_again

    def test_rejected_rows_of_the_shown_maps_are_listed_with_their_reason(
        self, database: Database, reader: TestClient, anonymous: TestClient
    ) -> None:
        task = RecordedTask("sync-1", CONTACT_SYNC, "sync_contacts", "shop", "d", "run", "sync", -1, 1, {"map": "crm"})
        database.write(lambda connection: record_progress(connection, task, FINISHED, {"rejected": 25}))
        assert "Rejected rows" not in reader.get("/contact-syncs").text
        for name in ("crm", "unshown"):
            key_map = open_map(database, conn_id="shop", base_url="https://x.example.com", table_id="t", name=name)
            lease = key_map.lease("a sync")
            entries = [
                MapEntry(key_map.hashes.of_key([str(row)]), RowState.REJECTED, rejected_hash=b"r" * 16)
                for row in range(25)
            ]
            rejected = [
                new_rejection(entry.key_hash, row, ["Plan"], f"<b>{name}</b>: no such plan for +{ADA}", NOW, b"")
                for row, entry in enumerate(entries, 1)
            ]
            lease.write([Change(MapEntry(entry.key_hash), entry) for entry in entries], {}, rejected)
        page = reader.get("/contact-syncs").text
        assert "Rejected rows: shop, map crm" in page
        assert page.count('data-name="Reason"') == 20
        assert "25 rows are rejected" in page
        assert "&lt;b&gt;crm&lt;/b&gt;: no such plan for ***" in page
        assert "unshown" not in page
        assert "no such plan" not in anonymous.get("/contact-syncs", headers={"x-dags": "mine"}).text

    def test_contact_sync_of_another_dag_is_hidden(self, database: Database, anonymous: TestClient) -> None:
        task = RecordedTask("sync-1", CONTACT_SYNC, "sync_contacts", "shop", "theirs", "run", "sync", -1)
        database.write(lambda connection: record_progress(connection, task, FINISHED, {}))
        assert "theirs" not in anonymous.get("/contact-syncs", headers={"x-dags": "mine"}).text


class TestPasscodes:
    def test_passcodes_are_counted_by_outcome(self, database: Database, reader: TestClient) -> None:
        later, before = timedelta(hours=2), timedelta(minutes=-1)
        for number in range(3):
            passcode(database, f"v{number}", "verified", ends=before)
        passcode(database, "e1", ends=before)
        passcode(database, "e2", "expired", ends=later)
        passcode(database, "p", ends=later)
        passcode(database, "r", "revoked", ends=later)
        assert {name: text.split()[0] for name, text in figures(reader.get("/passcodes").text).items() if text} == {
            "Requested": "7",
            "Verified": "3",
            "Expired": "2",
            "Revoked or failed": "1",
            "Pending": "1",
        }

    def test_verified_passcode_does_not_expire(self, database: Database, reader: TestClient) -> None:
        passcode(database, "v", "verified", ends=timedelta(minutes=-1))
        database.write(lambda connection: record_passcode_outcome(connection, "shop", "v", "expired"))
        assert figures(reader.get("/passcodes").text)["Verified"].startswith("1")

    def test_passcodes_of_one_connection_in_two_spellings_are_counted_together(
        self, database: Database, reader: TestClient
    ) -> None:
        passcode(database, "verified elsewhere", ends=timedelta(hours=2))
        database.write(lambda connection: record_passcode_outcome(connection, "SHOP", "verified elsewhere", "verified"))
        passcode(database, "pending", ends=timedelta(hours=2), conn_id="Shop")
        page = reader.get("/passcodes").text
        assert page.count('<tr><td class="lead">') == 1
        shown = figures(page)
        assert (shown["Requested"], shown["Verified"].split()[0], shown["Pending"].split()[0]) == ("2", "1", "1")

    def test_passcode_is_counted_once_if_a_later_try_spells_the_connection_otherwise(
        self, database: Database, reader: TestClient
    ) -> None:
        passcode(database, "one", "verified", ends=timedelta(hours=2))
        passcode(database, "one", ends=timedelta(hours=2), conn_id="Shop", earlier=True)
        assert figures(reader.get("/passcodes").text)["Requested"] == "1"

    def test_passcode_of_another_dag_is_not_counted(self, database: Database, anonymous: TestClient) -> None:
        passcode(database, "v", ends=timedelta(minutes=1), dag_id="theirs")
        page = anonymous.get("/passcodes", headers={"x-dags": "mine"}).text
        assert "No passcode was requested in this period" in page


class TestAirtime:
    def test_airtime_is_summed_by_network(self, database: Database, reader: TestClient) -> None:
        purchase(database, "a1")
        purchase(database, "a1", earlier=True)
        purchase(database, "a1", conn_id="Shop", earlier=True)
        purchase(database, "a2", network="Glo", amount=50)
        save_reports(database, report(ADA, "success", token=token_for(ADA, campaign="a2", reference="a2")))
        page = reader.get("/airtime").text
        assert re.findall(r'<td class="lead">(\w+)</td>', page) == ["MTN", "Glo"]
        assert figures(page)["Network"] == "Glo"
        assert figures(page)["Delivery"] == "delivered"
        assert ADA not in page

    def test_purchase_of_unknown_network_and_amount_is_shown(self, database: Database, reader: TestClient) -> None:
        purchase(database, "a1")
        purchase(database, "a2", network="", amount=None)
        page = reader.get("/airtime").text
        assert re.findall(r'<td class="lead">(\w+)</td>', page) == ["MTN", "unknown"]
        shown = figures(page)
        assert (shown["Network"], shown["Amount"]) == ("unknown", "\N{EN DASH}")

    def test_every_purchase_is_on_one_page(self, database: Database, reader: TestClient) -> None:
        for number in range(60):
            purchase(database, f"a{number:02}")
        pages, address = [], "/airtime"
        while address:
            page = reader.get(address).text
            pages.append(page.count('data-name="Bought"'))
            link = re.search(r'href="/cpaas(/airtime\?[^"]+)" rel="next"', page)
            address = link[1].replace("&amp;", "&") if link else ""
        assert pages == [25, 25, 10]

    def test_airtime_of_another_dag_is_hidden(self, database: Database, anonymous: TestClient) -> None:
        purchase(database, "a1", dag_id="theirs")
        assert "No airtime was bought" in anonymous.get("/airtime", headers={"x-dags": "mine"}).text


class TestReports:
    def test_reports_are_counted_by_minute(self, database: Database, reader: TestClient) -> None:
        first = report(ADA, "delivered", token=token_for(ADA, OBI))
        save_reports(database, first, report(OBI, "failed", token=token_for(ADA, OBI)))
        # Repeats count once, those of single messages like others.
        save_reports(database, first, report(ADA, "delivered", token=token_for(ADA, campaign="one", reference="one")))
        shown = figures(reader.get("/reports").text)
        assert shown == {"Undelivered": "1", "Delivered": "2", "All": "3"}

    def test_need_the_permission_to_see_totals(self, database: Database, anonymous: TestClient) -> None:
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, OBI)))
        answer = anonymous.get("/reports", headers={"x-dags": "*"})
        assert (answer.status_code, "shop" in answer.text) == (403, False)


@pytest.mark.parametrize(
    "path",
    [
        "/passcodes?days=0",
        "/passcodes?days=\u0663",
        "/passcodes?days=%00",
        "/passcodes?days=99999999999",
        "/airtime?days=x",
        "/airtime?before=%00",
        "/airtime?before=x",
        "/contact-syncs?conn_id=%00",
        "/contact-syncs?before=x~",
    ],
)
def test_invalid_parameter_is_refused(reader: TestClient, path: str) -> None:
    assert reader.get(path).status_code == 422


@pytest.mark.parametrize("path", ["/contact-syncs", "/passcodes", "/airtime", "/reports", "/search"])
def test_page_without_a_login_is_refused(anonymous: TestClient, path: str) -> None:
    assert anonymous.get(path).status_code == 401
